"""A hundred callers, one agent with room for four, and it stands still for a while.

It is never asked for more than it said; what cannot be served is refused at once and asked again only in small
numbers; it is used again soon after it recovered; and the flood delays no heartbeat and no table update.
"""

import random
import signal
import time
from collections import Counter
from typing import NamedTuple

from harness.counters import counted
from harness.disturbance import Disturbance
from harness.mesh import Mesh, Sidecar, get, post
from harness.process import Process
from harness.repeaters import Asked, Repeaters
from harness.verdict import UNPUNCTUAL, Facts, answered_in_time, broken_only_with_its_sidecar, makes_sense

CALLERS = 100
ROOM = 4
HEARTBEAT_S = 1.0
JITTER = 1.1
LATE_S = 1.0  # no heartbeat and no table update may be later than this
BREAKER_S = 10.0 * 1.2
STALL_S = 4.0


class Lateness(NamedTuple):
    heartbeat_s: float  # the longest time that control did not hear of one of them
    news_s: float  # the longest time until a change was seen by both
    statuses: set[str]


class Pulse:
    """Watches heartbeats by what control has heard, and table updates by an agent of which there is always news."""

    def __init__(self, control: Process, sidecars: list[Sidecar]) -> None:
        self._control = control
        self._sidecars = sidecars
        self._news = 0
        self.late_s = 0.0  # how late the test itself woke at worst: the machine, not the product
        self.worst = Lateness(0.0, 0.0, set())

    def watch(self, seconds: float) -> None:
        until = time.monotonic() + seconds
        while time.monotonic() < until:
            self._news += 1
            version = f"1.0.{self._news}"
            post(f"http://{self._control.ready['api']}/v1/register", {
                "agent_id": "news", "instance": "news", "address": "127.0.0.1:9", "healthy": True, "version": version})
            told = time.monotonic()
            waiting = list(self._sidecars)
            while waiting and time.monotonic() < told + 5:
                waiting = [one for one in waiting if self._version_at(one) != version]
                self._look_at_control()
            worst = self.worst
            self.worst = worst._replace(news_s=max(worst.news_s, time.monotonic() - told))
            asleep = time.monotonic()
            time.sleep(0.1)
            self.late_s = max(self.late_s, time.monotonic() - asleep - 0.1)

    def _version_at(self, sidecar: Sidecar) -> str | None:
        status, document = get(f"{sidecar.url}/v1/agents/news")
        return str(document["version"]) if status == 200 else None

    def _look_at_control(self) -> None:
        _, answer = get(f"http://{self._control.ready['admin']}/v1/peers")
        names = {sidecar.name for sidecar in self._sidecars}
        agents = [agent for agent in answer["agents"] if agent["agent_id"] in names]
        assert len(agents) == len(names)
        self.worst = self.worst._replace(
            heartbeat_s=max([self.worst.heartbeat_s, *(agent["heard_s"] for agent in agents)]),
            statuses=self.worst.statuses | {agent["status"] for agent in agents})


def test_a_stall_under_flood(mesh: Mesh) -> None:
    seed = random.randrange(1 << 32)
    print(f"seed {seed}")
    control = mesh.control(log={"level": "info"})
    agent = mesh.agent("one-agent", "metered.py")
    quiet = {"interval": "1h"}  # the health checks are not what is to find out
    capability = {"name": "work"}
    section = {"address": agent.ready["url"], "max_concurrency": ROOM, "queue": 8, "health": quiet}
    called = mesh.sidecar("one", control, {**section, "capabilities": [capability]}, log={"level": "info"})
    idle = mesh.agent("caller-agent")
    section = {"address": idle.ready["url"], "capabilities": [{"name": "rest"}]}
    caller = mesh.sidecar("caller", control, section, log={"level": "info"})
    mesh.wait_usable(caller, "work")
    pulse = Pulse(control, [called, caller])
    began = time.monotonic()
    callers = Repeaters({"caller": caller.url}, CALLERS, seed, pause_s=(0.2, 0.6), timeout_s=(0.7, 1.2), keyless=1.0, big=0.0)  # each call is asked for once
    try:
        pulse.watch(3)
        agent.signal(signal.SIGSTOP)
        stopped = time.monotonic()
        pulse.watch(STALL_S)
        agent.signal(signal.SIGCONT)
        went_on = time.monotonic()
        while not succeeded_since(callers.asked, went_on) and time.monotonic() < went_on + BREAKER_S + 5:
            pulse.watch(0.2)
        recovered_s = time.monotonic() - went_on
        pulse.watch(2)
    finally:
        asked = callers.stop()
    seconds = time.monotonic() - began
    arrived = counted(called, "reach_calls_total", side="in")
    _, meter = get(f"{agent.ready['url']}/meter")
    facts = Facts(asked, [], [Disturbance("stop", "one-agent", stopped, went_on)], pulse.late_s)
    late_s = LATE_S + UNPUNCTUAL * pulse.late_s
    answers = Counter("success" if one.succeeded else one.problem or one.broke for one in asked)
    print(f"{len(asked)} offered, {arrived:.0f} arrived, {meter}, recovered after {recovered_s:.2f} s, {pulse.worst}, "
          f"the test itself was up to {pulse.late_s:.3f} s late")
    print(dict(answers))

    assert recovered_s <= BREAKER_S + UNPUNCTUAL * pulse.late_s
    assert meter["peak"] == ROOM
    tried = len(asked) - answers["breaker_open"]  # those it has not even been asked for count for nothing
    assert arrived <= 1.2 * tried + seconds + 10
    for rule in (answered_in_time, broken_only_with_its_sidecar, makes_sense):
        assert not list(rule(facts))[:5]
    assert pulse.worst.statuses == {"up"}
    assert pulse.worst.heartbeat_s <= HEARTBEAT_S * JITTER + late_s
    assert pulse.worst.news_s <= late_s
    assert answers["success"] > 500
    last = [one for one in asked if one.ended > went_on + recovered_s + 1]
    assert sum(one.succeeded for one in last) > len(last) / 2, Counter(one.problem for one in last)


def succeeded_since(asked: list[Asked], moment: float) -> bool:
    return any(one.succeeded and one.began > moment for one in list(asked))
