"""The description and what really answers, driven against each other by schemathesis: every operation, valid
and invalid requests, in a real sidecar process with a real control node and agents."""

import contextlib

import jsonschema
import pytest
import schemathesis
from harness.mesh import Mesh, get, post
from hypothesis import HealthCheck, Phase, settings
from schemathesis.checks import not_a_server_error

from reach_sidecar.listen.openapi import document

DOCUMENT = document()
SCHEMA = schemathesis.openapi.from_dict(DOCUMENT)
STREAM = "/v1/watch"


@pytest.fixture(scope="module")
def url(tmp_path_factory):
    """A sidecar that knows an echo agent and serves an agent of its own."""
    mesh = Mesh(tmp_path_factory.mktemp("mesh"))
    with contextlib.closing(contextlib.ExitStack()) as stack:
        stack.callback(mesh.stop)
        control = mesh.control()
        sidecar = mesh.serve("summarizer-01", control, "summarize")
        mesh.serve("other", control, "echo")
        mesh.wait_usable(sidecar, "echo")
        mesh.wait_usable(sidecar, "summarize")
        yield sidecar.url


@SCHEMA.include(path_regex="^/").exclude(path=STREAM).parametrize()
@settings(max_examples=12, derandomize=True, database=None, deadline=None, phases=[Phase.explicit, Phase.generate],
          suppress_health_check=list(HealthCheck))
def test_every_answer_is_as_described(case, url):
    if case.path == "/v1/wait" and isinstance(case.query.get("timeout"), str):
        case.query["timeout"] = case.query["timeout"].replace("h", "ms")  # not ready is not what is tried here
    answer = case.call(base_url=url, timeout=10)
    case.validate_response(answer, excluded_checks=[not_a_server_error])
    assert answer.status_code != 500, "503 and 504 are what they say: nobody is fit, or the time is over"


def test_it_is_what_the_sidecar_serves(url):
    status, served = get(f"{url}/v1/openapi.json")
    assert (status, served) == (200, DOCUMENT)


def test_it_is_valid_openapi():
    SCHEMA.validate()
    assert DOCUMENT["openapi"].startswith("3.1.")
    operations = [one["operationId"] for path in DOCUMENT["paths"].values() for one in path.values()]
    assert len(operations) == len(set(operations)) == 11
    for name, component in DOCUMENT["components"]["schemas"].items():
        jsonschema.Draft202012Validator.check_schema(component)
        assert name.isidentifier()


def test_the_articles_calls_answer_exactly_200(url):
    status, answer = post(f"{url}/tasks/run", {"capability": "echo", "task": {"a": 1}, "task_id": "t-1"})
    assert status == 200
    assert '"task_id":"t-1"' in answer["body"].replace(" ", "")
    assert get(f"{url}/agents/summarizer-01")[0] == 200
    assert get(f"{url}/internal/health")[0] == 200
    assert post(f"{url}/agents/heartbeat", {"agent_id": "summarizer-01", "current_load": 0})[0] == 200
    assert post(f"{url}/agents/register", {"agent_id": "summarizer-01", "capabilities": ["summarize"]})[0] == 200
    assert post(f"{url}/agents/register", {"agent_id": "another"})[0] == 409
    assert post(f"{url}/tasks/run", {"capability": "summarise", "task": 1})[1]["near"] == ["summarize"]


