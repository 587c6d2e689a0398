"""A loop that fails is said to have failed, and begins again."""

import asyncio

import pytest

from reach_sidecar.membership import supervise as supervise_module
from reach_sidecar.membership.supervise import supervise


class Log:
    def __init__(self) -> None:
        self.lines: list[tuple[str, str, object]] = []

    def event(self, level: str, event: str, **fields: object) -> None:
        self.lines.append((level, event, fields["detail"]))


async def test_a_loop_that_fails_begins_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(supervise_module, "PAUSE_S", 0.0)
    log, runs, lasts = Log(), [0], asyncio.Event()

    async def run() -> None:
        runs[0] += 1
        if runs[0] == 1:
            raise KeyError("lost")
        if runs[0] == 3:
            lasts.set()
            await asyncio.sleep(60)

    task = asyncio.create_task(supervise("table sync", run, log))
    await asyncio.wait_for(lasts.wait(), 10)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert [(level, event) for level, event, _ in log.lines] == [("error", "defect")] * 2
    assert "table sync: KeyError('lost')" in str(log.lines[0][2])
    assert "it ended" in str(log.lines[1][2])
