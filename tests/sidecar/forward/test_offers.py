"""Who offers what is asked for, whatever their state; and what is said where nobody does."""

import pytest
from sidecar.forward.known import Known, call_to

from reach_core.peer import Capability, Rank
from reach_core.problem import Problem
from reach_sidecar.forward.offers import FindOffers


def found(known: Known, target: str, *fields: str) -> list[tuple[str, str, str]]:
    offers = FindOffers(known.view)(call_to(target, *fields))
    return sorted((offer.peer.agent_id, offer.capability.name, offer.matched) for offer in offers)


def refused(known: Known, target: str, *fields: str) -> Problem:
    with pytest.raises(Problem) as problem:
        FindOffers(known.view)(call_to(target, *fields))
    assert problem.value.executed == "no"
    return problem.value


def speaking(*languages: str) -> Capability:
    return Capability(name="summarize", attributes={"language": list(languages)})


@pytest.mark.parametrize(("target", "expected"), [
    ("/to/summarize/x", [("one", "summarize", "exact"), ("two", "summarize", "exact")]),
    ("/to/SUMMARIZE", [("one", "summarize", "exact"), ("two", "summarize", "exact")]),
    ("/to/shorten/x", [("two", "summarize", "alias")]),
    ("/to/better/x", [("three", "worse", "fallback")]),
    ("/to/@one/x", [("one", "summarize", "exact")]),
    ("/to/@ONE/x", [("one", "summarize", "exact")]),
    ("/to/@three/better", [("three", "worse", "exact")]),
])
def test_by_name_alias_fallback_or_id(target: str, expected: list[tuple[str, str, str]]) -> None:
    known = Known()
    known.put("one", "summarize", rank=Rank.DOWN)
    known.put("two", Capability(name="summarize", aliases=("shorten",)))
    known.put("three", "worse")
    known.put("gone", Capability(name="better", fallback="worse"))
    known.put("gone", "other")
    assert found(known, target) == expected, "who is down is known as well: the choice is made later"


def test_a_call_to_an_agent_is_for_what_its_path_means() -> None:
    known = Known()
    known.put("b", Capability(name="quick", path="/quick"), Capability(name="slow", path="/slow"))
    assert found(known, "/to/@b/slow?x=1") == [("b", "slow", "exact")]
    assert found(known, "/to/@b/else") == [("b", "-", "exact")]
    [offer] = FindOffers(known.view)(call_to("/to/@b/slow"))
    assert offer.wire_target == b"@b", "its sidecar is asked for the agent, as the caller asked"


def test_nobody_declares_it() -> None:
    known = Known()
    known.put("b", "message.push", "summarize")
    near = refused(known, "/to/sumarize/x")
    assert (near.code, near.extra) == ("no_such_capability", {"near": ["summarize"]})
    assert "Did you mean 'summarize'?" in near.detail
    nothing = refused(known, "/to/qqqq/x")
    assert nothing.extra == {"near": []}
    assert "reach peers" in nothing.detail


def test_the_same_words_in_another_order_are_proposed_as_an_alias() -> None:
    """Only who declares the one can say whether it is the other (design §3, "Matching")."""
    known = Known()
    known.put("b", "message.push")
    problem = refused(known, "/to/Push_Message/x")
    assert (problem.code, problem.extra) == ("no_such_capability", {"near": ["message.push"]})
    assert "aliases: [push.message]" in problem.detail


def test_no_such_agent() -> None:
    known = Known()
    known.put("summarizer-01", "summarize")
    problem = refused(known, "/to/@summarizer-02/x")
    assert problem.code == "no_such_agent"
    assert "'summarizer-01'" in problem.detail


@pytest.mark.parametrize(("fields", "agents"), [
    ([], ["en", "zh"]),
    (["Reach-Require: language=en"], ["en"]),
    (["Reach-Require: language!=en"], ["zh"]),
    (["reach-require: language=zh", "Reach-Require: language!=en"], ["zh"]),
])
def test_only_those_that_have_what_is_required(fields: list[str], agents: list[str]) -> None:
    known = Known()
    known.put("en", speaking("en"))
    known.put("zh", speaking("zh"))
    assert [agent for agent, _, _ in found(known, "/to/summarize/x", *fields)] == agents


def test_what_the_others_lack_is_remembered() -> None:
    """For the case that those which fit cannot be called either."""
    known = Known()
    known.put("en", speaking("en"))
    known.put("zh", speaking("zh"))
    call = call_to("/to/summarize/x", "Reach-Require: language=en")
    assert len(FindOffers(known.view)(call)) == 1
    [lacking] = call.mismatched
    assert lacking.startswith("zh: language=")


def test_nobody_has_what_is_required() -> None:
    known = Known()
    for number in range(12):
        known.put(f"b{number:02}", speaking("zh"))
    problem = refused(known, "/to/summarize/x", "Reach-Require: language=en")
    assert (problem.code, problem.status) == ("no_agent_available", 503)
    assert problem.detail.count(" is not met") == 10, "named, but not without end"


def test_a_requirement_that_cannot_be_read() -> None:
    known = Known()
    known.put("b", "summarize")
    problem = refused(known, "/to/summarize/x", "Reach-Require: >=3")
    assert problem.code == "bad_request"
    assert problem.detail.startswith("Reach-Require: ")


def test_the_table_is_read_anew_each_time() -> None:
    known = Known()
    find = FindOffers(known.view)
    known.put("one", "summarize")
    call = call_to("/to/summarize/x")
    assert len(find(call)) == 1
    known.put("two", "summarize")
    assert len(find(call)) == 2
