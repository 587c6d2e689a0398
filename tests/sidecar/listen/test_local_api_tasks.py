import msgspec
import orjson
import pytest

from reach_sidecar.http1.body import Body
from reach_sidecar.http1.message import Request, Response, field
from reach_sidecar.listen.local_api_tasks import as_call, run_task
from reach_sidecar.listen.local_api_types import RunTask

TRACE = "1" * 32


def asked(**headers):
    body = Body()
    body.finish()
    fields = [field(name.replace("_", "-"), value) for name, value in headers.items()]
    return Request(b"POST", b"/tasks/run", 11, fields, body)


def task(**fields):
    return msgspec.json.decode(msgspec.json.encode({"capability": "echo", "task": {"a": 1}, **fields}), type=RunTask)


def sent(request):
    return orjson.loads(request.body.take())


def test_what_the_agent_gets():
    request = as_call(asked(), task(timeout="1500ms", session_id="s", task_id="t-1"))
    assert (request.method, request.target) == (b"POST", b"/process")
    headers = {name: value for name, _, value in request.headers}
    trace_id = headers[b"traceparent"].split(b"-")[1].decode()
    length = int(headers[b"content-length"])
    assert request.body.size == length
    assert sent(request) == {"task": {"a": 1}, "task_id": "t-1", "trace_id": trace_id}
    assert headers[b"reach-target"] == b"echo"
    assert headers[b"idempotency-key"] == b"t-1"
    assert headers[b"reach-session"] == b"s"
    assert headers[b"reach-timeout"] == b"1500ms"
    assert headers[b"content-type"] == b"application/json"


def test_what_the_caller_says_otherwise_passes_through():
    request = as_call(
        asked(authorization="secret", traceparent=f"00-{TRACE}-{'2' * 16}-01", tracestate="x=y", reach_timeout="3s",
              reach_session="s", idempotency_key="k", content_length="9", connection="close", reach_require="a=b",
              reach_target="other", content_type="text/plain"),
        task())
    headers = {name: value for name, _, value in request.headers}
    assert len(headers) == len(request.headers), "nothing twice"
    assert headers[b"authorization"] == b"secret"
    assert headers[b"tracestate"] == b"x=y"
    assert headers[b"reach-timeout"] == b"3s"
    assert headers[b"reach-session"] == b"s"
    assert headers[b"reach-require"] == b"a=b"
    assert headers[b"idempotency-key"] == b"k"
    assert headers[b"reach-target"] == b"echo"
    assert b"connection" not in headers
    assert sent(request) == {"task": {"a": 1}, "task_id": "k", "trace_id": TRACE}


def test_a_repeat_is_the_same_request_byte_for_byte():
    first, second = (as_call(asked(), task(task_id="t")) for _ in range(2))
    assert first.headers == second.headers
    assert first.body.take() == second.body.take()
    other = as_call(asked(), task(task_id="t", capability="other"))
    assert sent(other)["trace_id"] != sent(as_call(asked(), task(task_id="t")))["trace_id"]


def test_without_a_name_each_task_is_a_new_one():
    one, other = sent(as_call(asked(), task())), sent(as_call(asked(), task()))
    assert one["task_id"] != other["task_id"]
    assert one["trace_id"] != other["trace_id"]


def test_a_broken_trace_takes_its_state_along():
    request = as_call(asked(traceparent="nonsense", tracestate="x=y"), task())
    assert request.header(b"tracestate") is None


@pytest.mark.parametrize(("status", "shown"), [(200, 200), (201, 200), (202, 202), (299, 200), (404, 404), (503, 503)])
async def test_success_is_exactly_200(status, shown):
    async def call(request):
        return Response.json(status, {"own": "answer"})

    response = await run_task(asked(), task(), call)
    assert (response.status, response.body) == (shown, b'{"own":"answer"}')


async def test_an_answer_without_content_is_null():
    sent = []

    async def call(request):
        response = Response(204, [field("Content-Type", "text/plain"), field("Reach-Agent", "b")])
        response.when_sent(lambda *how: sent.append(how))
        return response

    response = await run_task(asked(), task(), call)
    assert (response.status, response.reason, response.body, response.length) == (200, b"OK", b"null", 4)
    assert [(name, value) for _, name, value in response.headers] == [
        (b"Reach-Agent", b"b"), (b"Content-Type", b"application/json")]
    response.sent(4, None)
    assert sent == [(4, None)], "the call is counted as ended, and its place is free"
