import random
from itertools import pairwise

import pytest

from reach_control.registry.link import ANSWER_S, COMPARING_S, DIFFERENT_S, MOST_ECHOES, Link, Sent
from reach_core.peer import Entry, Rank

RANDOM = random.Random(1)


def link(acked: int = 10) -> Link:
    """Known for long, reachable, both with everything of the other."""
    made = Link("http://b", acked, 0.0)
    made.meet("b", "e1", acked, 0.0)
    made.is_reachable = True
    made.take(7, False, 0.0)
    made.hash = "h"
    made.see("h", True, 0.0)
    made.push(Sent(acked, 0, 0.0))
    made.sent = None
    return made


@pytest.mark.parametrize(
    ("last", "is_news", "now_s", "due_s"),
    [
        (10, False, 0.0, 1.0),
        (10, False, 0.4, 0.6),
        (11, False, 0.1, 0.1),
        (10, True, 0.1, 0.1),
        (11, False, 5.0, 0.0),
        (300, False, 0.0, 0.05),
    ],
)
def test_when_the_next_push_is_due(last: int, is_news: bool, now_s: float, due_s: float) -> None:
    assert link().due_s(now_s, last, is_news, 250) == pytest.approx(due_s)


def test_one_push_at_a_time_unless_it_is_never_answered() -> None:
    one = link()
    one.push(Sent(10, 0, 5.0))
    assert one.due_s(6.0, 99, True, 250) == pytest.approx(ANSWER_S - 1.0)
    assert one.due_s(5.0 + ANSWER_S, 99, True, 250) == 0.0


def test_pauses_after_failures() -> None:
    one, pauses = link(), []
    for at_s in range(0, 100, 10):
        one.push(Sent(10, 0, float(at_s)))
        one.fail("away", RANDOM)
        pauses.append(one.due_s(float(at_s), 99, True, 250))
    assert 0.4 <= pauses[0] <= 0.5
    assert all(4.0 <= pause <= 5.0 for pause in pauses[5:])
    assert not one.is_reachable


def test_a_new_process_is_compared_with_at_once_and_an_old_one_is_not_new() -> None:
    one = link()
    assert not one.meet("b", "e1", 99, 1.0)
    assert (one.acked, one.is_compare_due(99, 1.0)) == (10, False)
    assert one.meet("b", "e2", 99, 1.0)
    assert (one.acked, one.received) == (99, 0)
    assert one.is_compare_due(99, 1.0)
    assert not one.is_compare_due(99, 1.0), "it is under way"
    assert one.is_compare_due(99, 1.0 + COMPARING_S), "or was lost"


def test_equal_tables_need_no_comparison() -> None:
    one = link()
    one.meet("b", "e2", 10, 1.0)
    one.see("h", True, 1.0)
    assert not one.is_compare_due(10, 99.0)


def test_different_tables_are_compared_after_two_seconds_of_quiet() -> None:
    one = link()
    one.see("other", False, 1.0)
    assert not one.is_compare_due(10, 99.0)
    one.see("other", True, 1.0)
    assert not one.is_compare_due(10, 1.0 + DIFFERENT_S - 0.1)
    one.see("h", True, 2.0)
    assert not one.is_compare_due(10, 99.0), "it has passed by itself"
    one.see("other", True, 100.0)
    assert one.is_compare_due(10, 100.0 + DIFFERENT_S)


def test_not_while_the_other_cannot_be_reached() -> None:
    one = link()
    one.meet("b", "e2", 10, 1.0)
    one.fail("away", RANDOM)
    assert not one.is_compare_due(10, 2.0)
    one.failures = 0
    assert one.is_compare_due(10, 3.0)


def test_comparisons_go_on_while_they_bring_something_and_rarely_when_not() -> None:
    one, times = link(), []
    one.meet("b", "e2", 10, 0.0)
    for step in range(4_000):
        now_s = step / 10
        if one.is_compare_due(10 + len(times) if len(times) < 50 else 60, now_s):
            times.append(now_s)
            one.compared(False, now_s)
    assert times[50] < 6.0, "each brought something"
    pauses = [round(b - a, 1) for a, b in pairwise(times[51:])]
    assert pauses == sorted(pauses)
    assert pauses[-1] == pytest.approx(60.0)
    one.compared(True, 500.0)
    assert not one.is_compare_due(60, 999.0)


def test_a_gap_is_a_reason_to_compare() -> None:
    one = link()
    one.take(20, True, 5.0)
    assert one.received == 20
    assert one.is_compare_due(10, 5.0)


def test_what_the_other_told_is_not_told_back_once() -> None:
    one = link()
    entry = Entry(agent_id="a", gen=1, ver=1, rank=Rank.UP)
    newer = Entry(agent_id="a", gen=1, ver=2, rank=Rank.UP)
    one.heard(entry)
    assert not one.is_echo(newer)
    one.heard(newer)
    assert one.is_echo(newer)
    assert not one.is_echo(newer)
    for n in range(MOST_ECHOES + 100):
        one.heard(Entry(agent_id=f"agent-{n}", gen=1, ver=1, rank=Rank.UP))
    assert len(one._echoes) == MOST_ECHOES
