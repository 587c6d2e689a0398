"""Callers of work that must not be done twice: they repeat what failed with the same key, and write everything down.

As real ones do: until it succeeds, until an answer is final, or until they give up. Some repeat what has succeeded
too, some hang up before the answer and ask again, some ask twice at once, some bring no key (and then never repeat).
"""

import itertools
import random
import threading
import time
from collections.abc import Callable
from typing import Any, NamedTuple

from harness.wire import Answer, exchange

HANG_S = 25.0  # beyond its deadline; the socket gives up then, so that the test can say so
FINAL = {"agent_failure", "agent_invalid_request", "answer_not_kept", "key_reused"}


class Asked(NamedTuple):
    """One request and what became of it. Exactly one of `status`, `broke` and `hung_up` is there."""

    call: str
    keyed: bool
    via: str  # the sidecar it was sent to
    began: float  # monotonic
    ended: float
    timeout_s: float
    status: int | None = None
    problem: str | None = None  # the code
    executed: str | None = None  # of a problem
    agent: str | None = None  # who answered, or whom the problem is about
    agents: tuple[str, ...] = ()  # all that were tried, as the problem says
    run: str | None = None  # the number of the run that an answer belongs to
    trace_id: str | None = None
    broke: str | None = None  # no answer at all: what the socket said
    hung_up: bool = False  # the caller itself did not wait
    nonsense: str | None = None  # an answer that is neither the agent's nor a whole problem
    big: bool = False

    @property
    def succeeded(self) -> bool:
        return self.status == 200 and self.problem is None and self.nonsense is None


def judged(asked: Asked, answer: Answer) -> Asked:
    """What the answer says."""
    trace = answer.all("reach-trace-id")
    asked = asked._replace(status=answer.status, trace_id=trace[0] if trace else None)
    try:
        if answer.all("content-type") == ["application/problem+json"]:
            document: dict[str, Any] = answer.json
            code = answer.problem
            tried = tuple(str(one["agent"]) for one in document.get("attempts", ()))
            return asked._replace(problem=code, executed=document["executed"], agent=document.get("agent"), agents=tried,
                                  trace_id=asked.trace_id or document.get("trace_id"))
        document = answer.json
        if "turned_down" in document:
            return asked._replace(problem="turned_down", executed="no", agent=answer.one("reach-agent"))
        assert document["call"] == asked.call, "this is the answer to another call"
        return asked._replace(agent=answer.one("reach-agent"), run=document["run"])
    except (AssertionError, ValueError, KeyError, TypeError) as error:
        return asked._replace(nonsense=f"{answer.status} {answer.headers} {answer.body[:300]!r}: {error!r}")


class Repeaters:
    """`count` callers over the doors `{sidecar: url}`, each with one of them; `stop()` gives what they saw."""

    def __init__(self, doors: dict[str, str], count: int, seed: int, *, target: str = "/to/work/process",
                 pause_s: tuple[float, float] = (0.05, 0.4), timeout_s: tuple[float, float] = (1.0, 4.0),
                 patience_s: tuple[float, float] = (4.0, 12.0), keyless: float = 0.2, again: float = 0.15,
                 big: float = 0.02, impatient: float = 0.06, twins: float = 0.06) -> None:
        self.asked: list[Asked] = []
        self._target = target
        self._pause_s, self._timeout_s, self._patience_s = pause_s, timeout_s, patience_s
        self._keyless, self._again, self._big = keyless, again, big
        self._impatient, self._twins = impatient, twins
        self._seed = seed
        self._stop = threading.Event()
        names = itertools.cycle(doors.items())
        self._threads = [
            threading.Thread(target=self._work, args=(index, via, url), name=f"caller {index}", daemon=True)
            for index, (via, url) in zip(range(count), names, strict=False)
        ]
        for thread in self._threads:
            thread.start()

    def stop(self) -> list[Asked]:
        self._stop.set()
        until = time.monotonic() + self._timeout_s[1] + HANG_S + 5
        for thread in self._threads:
            thread.join(max(0.0, until - time.monotonic()))
        hanging = [thread.name for thread in self._threads if thread.is_alive()]
        assert not hanging, f"these never got an answer: {hanging}"
        return self.asked

    def _work(self, index: int, via: str, url: str) -> None:
        chance = random.Random(f"{self._seed} {index}")
        for number in itertools.count():
            if self._stop.wait(chance.uniform(*self._pause_s)):
                return
            self._one_call(f"{self._seed:x}-{index}-{number}", via, url, chance)

    def _one_call(self, call: str, via: str, url: str, chance: random.Random) -> None:
        keyed = chance.random() >= self._keyless
        body = b"x" * (300_000 if chance.random() < self._big else chance.randrange(1, 2000))
        timeout_s = round(chance.uniform(*self._timeout_s), 3)
        give_up_at = time.monotonic() + chance.uniform(*self._patience_s)
        unknown = 0
        extra = 0
        while True:
            waits_s = chance.uniform(0.01, 0.5) if keyed and chance.random() < self._impatient else None
            twin: threading.Thread | None = None
            if keyed and chance.random() < self._twins:
                twin = threading.Thread(target=self.ask, args=(call, via, url, body, keyed, timeout_s), daemon=True)
                twin.start()
                time.sleep(chance.choice([0.0, 0.005, 0.05]))
            asked = self.ask(call, via, url, body, keyed, timeout_s, waits_s)
            if twin is not None:
                twin.join(timeout_s + HANG_S)
            if not keyed or self._stop.is_set():
                return
            unknown += asked.executed == "unknown"
            if asked.succeeded or asked.problem in FINAL or (asked.problem is None and asked.status is not None):
                if chance.random() >= self._again or extra == 2:
                    return
                extra += 1  # the answer got lost behind the caller, say
            if unknown > 4 or time.monotonic() > give_up_at or self._stop.wait(chance.uniform(0.02, 0.6)):
                return

    def ask(self, call: str, via: str, url: str, body: bytes, keyed: bool, timeout_s: float,
            waits_s: float | None = None) -> Asked:
        """One request, written down. `waits_s`: the caller hangs up when it hears nothing for so long."""
        headers = [("Content-Type", "text/plain"), ("X-Call", call), ("Reach-Timeout", f"{timeout_s * 1000:.0f}ms")]
        if keyed:
            headers.append(("Idempotency-Key", call))
        asked = Asked(call, keyed, via, time.monotonic(), 0.0, timeout_s, big=len(body) > 256 * 1024)
        try:
            answer = exchange(url + self._target, headers, body, timeout=waits_s or timeout_s + HANG_S)
            asked = judged(asked, answer)
        except Exception as error:  # whatever a caller could see
            if isinstance(error, TimeoutError) and waits_s is not None:
                asked = asked._replace(hung_up=True)
            else:
                asked = asked._replace(broke=repr(error))
        asked = asked._replace(ended=time.monotonic())
        self.asked.append(asked)
        return asked


def settle(ask: Callable[[], Asked], in_a_row: int, seconds: float) -> None:
    """New calls succeed again, so many in a row."""
    good = 0
    until = time.monotonic() + seconds
    while good < in_a_row:
        asked = ask()
        good = good + 1 if asked.succeeded else 0
        assert time.monotonic() < until, f"calls still fail {seconds} s after everything was well again: {asked}"
        if not good:
            time.sleep(0.2)
