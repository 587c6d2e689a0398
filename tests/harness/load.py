"""Callers that keep calling while something is being broken, and account for every single call."""

import threading
import time
from collections import Counter
from collections.abc import Callable
from typing import NamedTuple

from harness.wire import Answer, exchange


class Outcome(NamedTuple):
    at: float  # monotonic, when the call ended
    seconds: float
    agent: str | None  # who answered, on success
    problem: str | None  # the code, on a clear error
    wrong: str | None  # anything else: a hang, a reset, nonsense


def judge(answer: Answer) -> tuple[str | None, str | None, str | None]:
    """(agent, problem, wrong): a 200 with the echo, or a problem document; there is no third good answer."""
    if answer.status == 200:
        return str(answer.json["agent"]), None, None
    try:
        return None, answer.problem, None
    except (AssertionError, ValueError, KeyError) as error:
        return None, None, f"{answer.status}: {error!r}"


class Load:
    """`callers` threads POST to `url` without a pause until `stop()`; a call longer than `limit_s` is a hang."""

    def __init__(self, url: str, callers: int = 4, limit_s: float = 15.0) -> None:
        self.url = url
        self.limit_s = limit_s
        self.outcomes: list[Outcome] = []
        self._stop = threading.Event()
        self._threads = [threading.Thread(target=self._call_on) for _ in range(callers)]
        for thread in self._threads:
            thread.start()

    def _call_on(self) -> None:
        while not self._stop.is_set():
            start = time.monotonic()
            agent = problem = wrong = None
            try:
                agent, problem, wrong = judge(exchange(self.url, body=b'{"task": "load"}', timeout=self.limit_s))
            except Exception as error:  # whatever a caller could see
                wrong = repr(error)
            now = time.monotonic()
            self.outcomes.append(Outcome(now, now - start, agent, problem, wrong))
            # Enough to have calls under way at any moment, not so many that the machine is what is tested.
            time.sleep(0.005 if agent else 0.02)

    def __enter__(self) -> "Load":
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def stop(self) -> list[Outcome]:
        self._stop.set()
        for thread in self._threads:
            thread.join(self.limit_s + 5)
        return self.outcomes

    def since(self, moment: float) -> list[Outcome]:
        """Calls that ended after this moment."""
        return [outcome for outcome in list(self.outcomes) if outcome.at >= moment]

    def wait_for(self, what: Callable[[Outcome], bool], seconds: float) -> Outcome:
        """The first outcome from now on that fits."""
        start = time.monotonic()
        while time.monotonic() < start + seconds:
            for outcome in self.since(start):
                if what(outcome):
                    return outcome
            time.sleep(0.02)
        raise AssertionError(f"not within {seconds} s; outcomes since: {self.summary(start)}")

    def summary(self, since: float = 0.0) -> dict[str, int]:
        return dict(Counter(str(o.agent or o.problem or o.wrong) for o in self.since(since)))
