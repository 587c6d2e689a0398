import asyncio
import sys
import time

import pytest
from aiohttp import web

from reach_core.messages import LeaveAnswer, LeaveRequest, encode
from reach_sidecar.membership.controls import Backoff, Controls, Refused, Unreachable

MESSAGE = LeaveRequest(agent_id="a", instance="i")


def test_back_off_doubles_up_to_a_bound_and_begins_anew():
    backoff = Backoff(first_s=0.1, most_s=1.0)
    assert [backoff.next_s(0.5) for _ in range(6)] == pytest.approx([0.1, 0.2, 0.4, 0.8, 1.0, 1.0])
    for _ in range(2000):
        backoff.next_s(0)
    assert backoff.next_s(0) == pytest.approx(0.5)
    assert backoff.next_s(1) == pytest.approx(1.5)
    backoff.reset()
    assert backoff.next_s(0.5) == pytest.approx(0.1)


def test_all_nodes_are_tried_in_turn(log):
    controls = Controls(["http://a", "http://b/"], log)
    moved = controls.moved
    assert controls.move_on("http://a") is False
    assert moved.is_set()
    assert controls.url == "http://b"
    assert controls.move_on("http://a") is False, "somebody else has moved on already"
    assert controls.url == "http://b"
    assert controls.move_on("http://b") is True
    assert controls.url == "http://a"


async def serve(handler):
    server = web.Server(handler)
    runner = web.ServerRunner(server, shutdown_timeout=0.01)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    return runner, f"http://127.0.0.1:{site._server.sockets[0].getsockname()[1]}"


@pytest.mark.parametrize(
    ("status", "body", "reason"),
    [
        (500, b"{}", "answered with status 500"),
        (302, b"{}", "answered with status 302"),
        (404, b"404: Not Found", "answered with status 404"),
        (404, b'{"type": "urn:reach:not_found"}', "answered with status 404"),
        (409, b"[]", "answered with status 409"),
        (400, b"\xff", "answered with status 400"),
        (200, b"<html>", "not a control node"),
        (200, b"{}", "not a control node"),
        (200, b"x" * 20_000, "more than 16384 bytes"),
    ],
)
async def test_what_is_no_answer_of_a_control_node(log, status, body, reason):
    async def handler(request):
        return web.Response(status=status, body=body)

    runner, url = await serve(handler)
    controls = Controls([url], log)
    try:
        for _ in range(2):
            with pytest.raises(Unreachable, match=reason):
                await controls.post("/v1/leave", MESSAGE, LeaveAnswer)
        assert reason in controls.trouble
        assert not controls.connected
        assert [event for _, event, _ in log.events] == ["control_lost"], "said once"
    finally:
        await controls.close()
        await runner.cleanup()


@pytest.mark.parametrize(
    ("status", "body", "code", "detail"),
    [
        (409, b'{"type": "urn:reach:agent_id_conflict", "detail": "Taken."}', "agent_id_conflict", "Taken."),
        (404, b'{"type": "urn:reach:register_again", "title": "Who?"}', "register_again", "Who?"),
        (403, b'{"type": "urn:reach:not_allowed", "detail": "Send a token."}', "not_allowed", "Send a token"),
    ],
)
async def test_a_refusal_says_why(log, status, body, code, detail):
    async def handler(request):
        return web.Response(status=status, body=body)

    runner, url = await serve(handler)
    controls = Controls([url], log)
    try:
        with pytest.raises(Refused, match=detail) as caught:
            await controls.post("/v1/leave", MESSAGE, LeaveAnswer)
        assert caught.value.code == code
        assert controls.connected
        assert controls.trouble is None
    finally:
        await controls.close()
        await runner.cleanup()


async def test_silence_ends_in_time(log):
    async def handler(request):
        await asyncio.sleep(30)

    runner, url = await serve(handler)
    controls = Controls([url], log)
    began = time.monotonic()
    try:
        with pytest.raises(Unreachable, match="did not answer in time"):
            await controls.post("/v1/leave", MESSAGE, LeaveAnswer, timeout_s=0.2)
        assert time.monotonic() - began < 2
    finally:
        await controls.close()
        await runner.cleanup()


async def test_a_node_that_is_busy_or_too_old_for_a_comparison_is_not_lost(log):
    answers = [web.json_response({"type": "urn:reach:backpressure", "detail": "Later."}, status=503),
               web.json_response({"type": "urn:reach:not_found", "detail": "Nothing."}, status=404)]

    async def handler(request):
        if request.path == "/v1/gossip":
            return answers.pop(0)
        return web.Response(body=encode(LeaveAnswer(status="left", agent_id="a")))

    runner, url = await serve(handler)
    controls = Controls([url], log)
    try:
        await controls.post("/v1/leave", MESSAGE, LeaveAnswer)
        with pytest.raises(Refused, match=r"Later\."):
            await controls.gossip(b"x")
        assert await controls.gossip(b"x") == b""
        assert controls.connected
    finally:
        await controls.close()
        await runner.cleanup()


async def test_nobody_listening_says_what_to_do(log):
    controls = Controls(["http://127.0.0.1:1"], log)
    with pytest.raises(Unreachable, match=r"the connection was refused\. Start it with `reach control`"):
        await controls.post("/v1/leave", MESSAGE, LeaveAnswer)
    await controls.close()


async def test_the_token_goes_along(log):
    seen = []

    async def handler(request):
        seen.append(request.headers.get("Reach-Api-Token"))
        return web.Response(status=500)

    runner, url = await serve(handler)
    for token in (None, "secret"):
        controls = Controls([url], log, api_token=token)
        with pytest.raises(Unreachable):
            await controls.post("/v1/leave", MESSAGE, LeaveAnswer)
        with pytest.raises(Unreachable):
            await controls.table(0, "", 0)
        await controls.close()
    await runner.cleanup()
    assert seen == [None, None, "secret", "secret"]


SCRIPT = """
import asyncio, importlib.abc, sys, threading
from reach_core.messages import LeaveAnswer, LeaveRequest, encode
from reach_sidecar.membership.controls import Controls, Unreachable
where = []
class Seen(importlib.abc.MetaPathFinder):
    def find_spec(self, name, path, target=None):
        if name.split(".")[0] == "aiohttp":
            where.append(threading.current_thread() is threading.main_thread())
class Log:
    def event(self, *args, **fields): pass
sys.meta_path.insert(0, Seen())
async def main():
    try:
        await Controls(["http://127.0.0.1:1"], Log()).post("/v1/leave", LeaveRequest(agent_id="a", instance="i"), LeaveAnswer)
    except Unreachable:
        pass
asyncio.run(main())
assert where and not any(where), where
"""


async def test_the_loop_does_not_stand_still_while_the_client_is_imported():
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-W", "ignore", "-c", SCRIPT, stderr=asyncio.subprocess.PIPE)
    _, error = await asyncio.wait_for(process.communicate(), 30)
    assert process.returncode == 0, error.decode()
