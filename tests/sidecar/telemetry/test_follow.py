"""Following: each line once across stored and live, and a slow follower knows what it missed."""

import asyncio
import threading

from reach_sidecar.telemetry import follow
from reach_sidecar.telemetry.follow import Followed, Followers
from reach_sidecar.telemetry.line import Line


def line(text: str, trace_id: str | None = None, rank: int = 20) -> Line:
    return (0, rank, trace_id, text.encode())


async def test_numbers_go_with_the_lines_and_filters_keep_them() -> None:
    hub = Followers()
    everything, mine = hub.add(None, 0), hub.add("t", 30)
    hub.publish(5, [line("a"), line("b", "t"), line("c", "t", 40)])
    assert await everything.next(1) == [Followed(5, b"a"), Followed(6, b"b"), Followed(7, b"c")]
    assert await mine.next(1) == [Followed(7, b"c")]
    assert hub.next_seq == 8


async def test_nothing_in_time_and_the_end() -> None:
    hub = Followers()
    follower = hub.add(None, 0)
    assert await follower.next(0.01) == []
    hub.publish(1, [line("last")])
    hub.close()
    await asyncio.sleep(0)
    assert await follower.next(1) == [Followed(1, b"last")]
    assert await follower.next(1) is None


async def test_lines_from_another_thread_wake_who_waits() -> None:
    hub = Followers()
    follower = hub.add(None, 0)
    waiting = asyncio.ensure_future(follower.next(5))
    await asyncio.sleep(0)
    threading.Thread(target=hub.publish, args=(1, [line("x")])).start()
    assert await waiting == [Followed(1, b"x")]


async def test_a_slow_follower_is_bounded_and_told() -> None:
    hub = Followers()
    follower = hub.add(None, 0)
    for start in range(0, 5000, 100):
        hub.publish(start, [line("x")] * 100)
    await asyncio.sleep(0)
    got = await follower.next(1)
    assert got is not None
    assert len(got) == follow.MAX_WAITING_LINES + 1
    assert got[-1].missed == 5000 - follow.MAX_WAITING_LINES
    hub.publish(5000, [line("y")])
    assert await follower.next(1) == [Followed(5000, b"y")]


async def test_who_left_gets_nothing_and_a_closed_loop_harms_nobody() -> None:
    hub = Followers()
    follower = hub.add(None, 0)
    follower.close()
    hub.publish(1, [line("x")])
    assert await follower.next(0.01) == []
    assert len(hub) == 0

    async def leave_one() -> None:
        hub.add(None, 0)

    await asyncio.to_thread(asyncio.run, leave_one())
    hub.publish(2, [line("x")])
    hub.close()
