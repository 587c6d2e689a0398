"""Which agent gets a call: names, fallbacks, attributes, preferences, sessions (design §3, "Matching", "Picking")."""

import asyncio
from collections import Counter
from collections.abc import Sequence
from typing import Any

import pytest
from harness.delivery import said
from harness.sidecars import Mesh, Node, ok

from reach_core.peer import Rank
from reach_sidecar.config import CapabilityConfig


async def mesh_of(inner: Mesh, **agents: Sequence[str | CapabilityConfig]) -> Node:
    """A caller, and an agent for each name with these capabilities."""
    a = await inner.node("a")
    for name, capabilities in agents.items():
        await inner.node(name, ok(name.encode()), *capabilities)
    inner.share()
    return a


def node(inner: Mesh, name: str) -> Node:
    return next(one for one in inner.nodes if one.id == name)


def named(name: str, fallback: str | None = None, *aliases: str, **attributes: Any) -> CapabilityConfig:
    return CapabilityConfig(name=name, fallback=fallback, aliases=list(aliases), attributes=attributes)


# -- names

NAMES = [
    ("text.summarize", "b", "exact"), ("Text_Summarize", "b", "exact"), ("text-summarize", "b", "exact"),
    ("text summarize", "b", "exact"), ("TEXT/SUMMARIZE", "b", "exact"),
    ("shorten", "b", "alias"), ("Make_Short", "b", "alias"), ("abridge", "b", "alias"),
    ("summarize.text", None, None), ("text", None, None), ("text.summarizer", None, None),
]


@pytest.mark.parametrize(("asked", "agent", "matched"), NAMES)
async def test_names(inner: Mesh, asked: str, agent: str | None, matched: str | None) -> None:
    a = await mesh_of(inner, b=[named("text_summarize", None, "shorten", "make-short")])
    a.sidecar.view.take_aliases({"text.summarize": ["abridge"]})
    got = await inner.ask(a, "/x", f"Reach-Target: {asked}", body=b"work")
    if agent is None:
        assert said(got) == "404 no_such_capability (no) not tried"
    else:
        assert (got.header("Reach-Agent"), got.header("Reach-Matched")) == (agent, matched)


async def test_the_exact_name_wins_over_an_alias(inner: Mesh) -> None:
    a = await mesh_of(inner, b=[named("draw", None, "paint")], c=["paint"])
    for _ in range(5):
        got = await inner.ask(a, "/to/paint/x", body=b"work")
        assert (got.header("Reach-Agent"), got.header("Reach-Matched")) == ("c", "exact")


# -- fallbacks: which of one -> two -> three -> four are well, and what becomes of a call for `one`

CHAIN = [("one", "two"), ("two", "three"), ("three", "four"), ("four", None)]
FALLBACKS = [
    ("one two three four", "200 one in 1", "exact"),
    ("two three four", "200 two in 1", "fallback"),
    ("three four", "200 three in 1", "fallback"),
    ("four", "503 no_agent_available (no) not tried", None),  # followed at most twice
    ("", "503 no_agent_available (no) not tried", None),
]


@pytest.mark.parametrize(("well", "expected", "matched"), FALLBACKS)
async def test_fallbacks(inner: Mesh, well: str, expected: str, matched: str | None) -> None:
    a = await mesh_of(inner, **{name: [named(name, fallback)] for name, fallback in CHAIN})
    for name, _ in CHAIN:
        if name not in well.split():
            a.learn(node(inner, name).entry(flags=("draining",)))
    got = await inner.ask(a, "/to/one/x", body=b"work")
    assert (said(got), got.header("Reach-Matched")) == (expected, matched)
    if matched == "fallback":
        assert node(inner, well.split()[0]).agent.last.one("Idempotency-Key")


@pytest.mark.parametrize("pairs", [[("one", "one")], [("one", "two"), ("two", "one")],
                                   [("one", "two"), ("two", "three"), ("three", "one")], [("one", "nowhere")]])
async def test_fallbacks_never_go_in_a_circle(inner: Mesh, pairs: list[tuple[str, str]]) -> None:
    a = await mesh_of(inner, **{name: [named(name, fallback)] for name, fallback in pairs})
    for name, _ in pairs:
        a.learn(node(inner, name).entry(flags=("draining",)))
    got = await inner.ask(a, "/to/one/x", body=b"work")
    assert said(got) == "503 no_agent_available (no) not tried"


async def test_the_fallback_of_one_whose_breaker_is_open(inner: Mesh) -> None:
    a = await inner.node("a")
    await inner.node("b", ok().replace(b"200 OK", b"500 No"), named("one", "two"))
    await inner.node("c", ok(), "two")
    inner.share()
    for _ in range(10):
        assert (await inner.ask(a, "/to/one/x", body=b"work")).status == 500
    got = await inner.ask(a, "/to/one/x", body=b"work")
    assert (said(got), got.header("Reach-Matched")) == ("200 c in 1", "fallback")


async def test_a_fallback_is_found_by_an_alias_too(inner: Mesh) -> None:
    a = await mesh_of(inner, b=[named("one", "Plan_B")], c=[named("two", None, "plan.b")])
    a.learn(node(inner, "b").entry(flags=("draining",)))
    got = await inner.ask(a, "/to/one/x", body=b"work")
    assert (said(got), got.header("Reach-Matched")) == ("200 c in 1", "fallback")


# -- attributes: who of these may get the call

AGENTS: dict[str, dict[str, list[str]]] = {
    "old": {"language": ["python-3.9"], "cost": ["low"]},
    "new": {"language": ["python3.11"], "cost": ["high"], "model": ["a", "b"]},
    "ten": {"language": ["python"], "version": ["3.10"]},
    "node": {"language": ["javascript"], "version": ["20"]},
    "none": {},
}
REQUIRED = [
    ("language=python", "old new ten"), ("language=Python", "old new ten"), ("language=python, version>=3.10", "new ten"),
    ("language=python, version>3.10", "new"), ("version>=3.11", "new node"), ("language=python, version<3.10", "old"),
    ("language=python3", "old new ten"), ("language=python3.11", "new"), ("language=python, version<=3.9", "old"),
    ("version=3.1", ""), ("language=python,version=3.10", "ten"), ("cost=low", "old"), ("cost!=low", "new ten node none"),
    ("model=b", "new"), ("model", "new"), ("cost=low, model=a", ""), ("", "old new ten node none"),
]


@pytest.mark.parametrize(("required", "who"), REQUIRED)
async def test_what_is_required(inner: Mesh, required: str, who: str) -> None:
    """The call, the listing, and the reason agree."""
    a = await mesh_of(inner, **{name: [named("work", None, **attributes)] for name, attributes in AGENTS.items()})
    field = [f"Reach-Require: {required}"] if required else []
    answers = await asyncio.gather(*(inner.ask(a, "/to/work/x", *field, body=b"work") for _ in range(25)))
    assert {one.header("Reach-Agent") for one in answers if one.status == 200} <= set(who.split())
    assert {one.code for one in answers} == ({None} if who else {"no_agent_available"})
    query = f"capability=work&require={required.replace(' ', '%20').replace('>', '%3E').replace('<', '%3C').replace('=', '%3D')}"
    shown = (await inner.ask(a, f"/v1/agents?{query}")).json["agents"]
    assert {one["agent_id"] for one in shown if one["excluded"] is None} == set(who.split())
    assert {one["excluded"]["reason"] for one in shown if one["excluded"]} <= {"mismatch"}


async def test_what_is_preferred(inner: Mesh) -> None:
    """Should match: who matches gets it, and where nobody does, anybody."""
    a = await mesh_of(inner, b=[named("work", cost=["low"])], c=[named("work", cost=["high"])])
    for _ in range(8):
        assert (await inner.ask(a, "/to/work/x", "Reach-Prefer: cost=high", body=b"w")).header("Reach-Agent") == "c"
    a.learn(node(inner, "c").entry(flags=("draining",)))
    assert (await inner.ask(a, "/to/work/x", "Reach-Prefer: cost=high", body=b"w")).header("Reach-Agent") == "b"
    assert (await inner.ask(a, "/to/work/x", "Reach-Prefer: cost=none", body=b"w")).status == 200
    last = node(inner, "b").agent.last
    assert not last.all("Reach-Prefer"), "it steers the target: not for the called agent"


# -- sessions


async def session(inner: Mesh, a: Node, value: str) -> str | None:
    return (await inner.ask(a, "/to/work/x", f"Reach-Session: {value}", body=b"work")).header("Reach-Agent")


async def test_a_session_stays_with_its_agent(inner: Mesh) -> None:
    """Whatever else is going on, and whoever joins."""
    a = await mesh_of(inner, **{f"b{number}": ["work"] for number in range(4)})
    placed = {f"s{number}": await session(inner, a, f"s{number}") for number in range(16)}
    assert max(Counter(placed.values()).values()) <= 5, "bounded: 1.25 of the mean, 4"
    late = await inner.node("late", ok(), "work")
    a.learn(late.entry())
    for value, agent in placed.items():
        assert [await session(inner, a, value) for _ in range(2)] == [agent] * 2
    asked = node(inner, str(placed["s0"])).agent.asked
    assert all(one.one("Reach-Session") for one in asked), "the agent knows whose session it is"


async def test_it_moves_only_when_its_agent_is_unfit(inner: Mesh) -> None:
    a = await mesh_of(inner, **{f"b{number}": ["work"] for number in range(3)})
    placed = {f"s{number}": str(await session(inner, a, f"s{number}")) for number in range(9)}
    gone = placed["s0"]
    a.learn(node(inner, gone).entry(flags=("unfit",)))
    moved = {value: str(await session(inner, a, value)) for value in placed}
    assert all(moved[value] == agent for value, agent in placed.items() if agent != gone)
    assert gone not in moved.values()
    assert {value: await session(inner, a, value) for value in placed} == moved, "and stay where they are"


# -- the decision is visible: why each of these is not called

REASONS: dict[str, tuple[dict[str, Any], str]] = {
    "down": ({"rank": Rank.DOWN}, "agent_down"), "suspect": ({"rank": Rank.SUSPECT}, "agent_down"),
    "joining": ({"rank": Rank.JOINING}, "agent_down"), "draining": ({"flags": ("draining",)}, "draining"),
    "unfit": ({"flags": ("unfit",)}, "agent_unfit"),
}


@pytest.mark.parametrize("state", REASONS)
async def test_why_an_agent_is_not_called(inner: Mesh, state: str) -> None:
    changes, reason = REASONS[state]
    a = await mesh_of(inner, b=["work"])
    a.learn(node(inner, "b").entry(**changes))
    for target in ("/v1/agents?capability=work", "/v1/agents"):
        [shown] = (await inner.ask(a, target)).json["agents"]
        assert (shown["excluded"]["reason"], bool(shown["excluded"]["detail"])) == (reason, True)
    assert (await inner.ask(a, "/v1/agents/b")).json["excluded"]["reason"] == reason
    got = await inner.ask(a, "/to/work/x", body=b"work")
    assert said(got) == "503 no_agent_available (no) not tried"
