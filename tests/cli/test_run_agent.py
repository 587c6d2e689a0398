"""The agent's process as `reach run` sees it."""

import asyncio
import os
import signal
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from reach_cli.run_agent import AgentProcess, forward_signals


async def ended(agent: AgentProcess) -> int:
    return await asyncio.wait_for(asyncio.shield(agent.ended), 10)


async def pid_of(agent: AgentProcess) -> int:
    async with asyncio.timeout(10):
        while agent.pid is None:
            await asyncio.sleep(0.01)
    return agent.pid


def start(*command: str, **env: str) -> AgentProcess:
    return AgentProcess(command, {**os.environ, **env}, None)


async def test_the_exit_code_and_the_environment() -> None:
    assert await ended(start("sh", "-c", "exit $CODE", CODE="9")) == 9


async def test_a_signal_is_forwarded() -> None:
    agent = start("sleep", "60")
    await pid_of(agent)
    agent.forward(signal.SIGTERM)
    assert await ended(agent) == 128 + signal.SIGTERM
    agent.forward(signal.SIGTERM)  # nobody is there any more: no error


async def test_ending_it_ends_all_of_it() -> None:
    agent = start("sh", "-c", "sleep 60 & exec sleep 60")
    pid = await pid_of(agent)
    began = time.monotonic()
    assert await agent.end() == 128 + signal.SIGKILL
    assert time.monotonic() - began < 5
    with pytest.raises(ProcessLookupError):
        os.killpg(pid, 0)


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="PR_SET_PDEATHSIG is Linux's")
async def test_a_shim_that_was_killed_takes_the_group_along() -> None:
    agent = start("sh", "-c", "sleep 60 & exec sleep 60")
    pid = await pid_of(agent)
    os.kill(agent._shim.pid, signal.SIGKILL)
    assert await ended(agent) == 128 + signal.SIGKILL
    async with asyncio.timeout(10):
        while _group_lives(pid):
            await asyncio.sleep(0.01)


def _group_lives(group: int) -> bool:
    for process in Path("/proc").glob("[0-9]*"):
        try:
            fields = (process / "stat").read_text().rpartition(")")[2].split()
        except OSError:
            continue
        if int(fields[2]) == group and fields[0] != "Z":
            return True
    return False


async def test_what_is_ignored_stays_ignored() -> None:
    """nohup: a SIGHUP that whoever started us wants ignored is not caught either."""
    heard: list[Any] = []
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        forward_signals(heard.append)
        os.kill(os.getpid(), signal.SIGHUP)
        os.kill(os.getpid(), signal.SIGUSR1)
        async with asyncio.timeout(5):
            while not heard:
                await asyncio.sleep(0.01)
        assert heard == [signal.SIGUSR1]
    finally:
        loop = asyncio.get_running_loop()
        for number in signal.valid_signals():
            loop.remove_signal_handler(number) if number not in (signal.SIGKILL, signal.SIGSTOP) else None
        signal.signal(signal.SIGHUP, before)
