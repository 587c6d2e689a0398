import msgspec
import pytest

from reach_sidecar.listen.local_api_types import Declaration, ProblemDocument, RegisterAgent, RunTask, seconds


@pytest.mark.parametrize(
    ("given", "expected"), [(5, 5.0), (0.5, 0.5), ("1500ms", 1.5), ("1m30s", 90.0), (0, 0.001), ("999999d", 1_000_000)]
)
def test_seconds(given, expected):
    assert seconds(given) == expected


@pytest.mark.parametrize(
    "document",
    [
        {"capability": "", "task": 1},
        {"capability": " echo", "task": 1},
        {"capability": "e\x00", "task": 1},
        {"capability": "echo"},
        {"capability": "echo", "task": 1, "task_id": "a\r\nb: c"},
        {"capability": "echo", "task": 1, "task_id": ""},
        {"capability": "echo", "task": 1, "timeout": -1},
        {"capability": "echo", "task": 1, "timeout": "soon"},
        {"capability": "echo", "task": 1, "timeout": True},
    ],
)
def test_tasks_that_are_refused(document):
    with pytest.raises(msgspec.ValidationError):
        msgspec.json.decode(msgspec.json.encode(document), type=RunTask)


def test_a_task_stays_as_it_was_written():
    raw = b'{"n": 123456789012345678901234567890, "s": "\\u00e9", "f": 1.0}'
    task = msgspec.json.decode(b'{"capability": "\xe6\x91\x98\xe8\xa6\x81", "task": ' + raw + b"}", type=RunTask)
    assert bytes(task.task) == raw
    assert task.capability == "摘要"


def test_names_and_details_may_be_mixed():
    one = msgspec.json.decode(b'{"agent_id": "a", "capabilities": ["x", {"name": "y"}]}', type=RegisterAgent)
    assert one.capabilities[0] == "x"
    assert one.capabilities[1].capability().path == "/process"


def test_a_declaration_becomes_a_capability():
    capability = Declaration(name="a", attributes={"cost": "low", "n": 3, "f": [True, 1.5]}, timeout=2).capability()
    assert capability.attributes == {"cost": ["low"], "n": ["3"], "f": ["true", "1.5"]}
    assert capability.timeout_s == 2.0


def test_a_problem_without_a_trace_leaves_it_out():
    problem = ProblemDocument("urn:reach:not_found", "t", 404, "d", "no", [])
    assert b"trace_id" not in msgspec.json.encode(problem)
