import msgspec
import pytest

from reach_core.peer import Capability, Rank
from reach_core.problem import Problem
from reach_sidecar.listen.local_api_types import AgentList, RegisteredAgent, Self

PYTHON = Capability(name="run.code", aliases=("execute",), attributes={"language": ["python-3.11"]})
NODE = Capability(name="run.code", attributes={"language": ["node"]})


def ids(document):
    return {one["agent_id"]: (one["excluded"] or {}).get("reason") for one in document["agents"]}


async def test_all_agents_and_why_one_is_excluded(stand):
    stand.put("up", "echo")
    stand.put("unfit", "echo", flags=("unfit",))
    stand.put("draining", "echo", flags=("draining",))
    stand.put("down", "echo", rank=Rank.DOWN)
    stand.put("gone", "echo")
    stand.remove("gone")
    found = stand.api.documents.listing({})
    assert ids(found) == {"up": None, "unfit": "agent_unfit", "draining": "draining", "down": "agent_down"}
    assert found["table"] == {"entries": 4, "hash": stand.table.hash, "age_s": 1.5}
    msgspec.convert(found, AgentList)


@pytest.mark.parametrize(
    ("parameters", "expected"),
    [
        ({"capability": "Run_Code"}, {"py": None, "js": None}),
        ({"capability": "execute"}, {"py": None}),
        ({"capability": "run.code", "require": "language=python, version>=3.9"}, {"py": None, "js": "mismatch"}),
        ({"require": "language=node"}, {"py": "mismatch", "js": None, "other": "mismatch"}),
        ({"capability": "nothing"}, {}),
        ({"capability": "", "require": ""}, {"py": None, "js": None, "other": None}),
    ],
)
async def test_by_capability_and_attributes(stand, parameters, expected):
    stand.put("py", PYTHON)
    stand.put("js", NODE)
    stand.put("other", "echo")
    assert ids(stand.api.documents.listing(parameters)) == expected


async def test_a_mismatch_says_what_is_missing(stand):
    stand.put("js", NODE)
    found = stand.api.documents.listing({"capability": "run.code", "require": "cost=low"})
    assert found["agents"][0]["excluded"]["detail"] == "its attributes do not meet cost=low"


async def test_near_names_are_shown_where_nobody_offers_it(stand):
    stand.put("a", "message.push")
    assert stand.api.documents.listing({"capability": "push.message"})["near"] == ["message.push"]
    assert "near" not in stand.api.documents.listing({"capability": "message.push"})


async def test_a_requirement_that_cannot_be_read(stand):
    with pytest.raises(Problem, match="`require` cannot be read"):
        stand.api.documents.listing({"require": "="})


async def test_one_agent_and_one_that_is_not_there(stand):
    stand.put("summarizer-01", "echo")
    assert stand.api.documents.one("summarizer-01")["status"] == "up"
    with pytest.raises(Problem, match="Did you mean 'summarizer-01'") as caught:
        stand.api.documents.one("sumarizer-01")
    assert caught.value.extra == {"near": ["summarizer-01"]}


async def test_our_own_agent_is_found_before_control_knows_it(agent_stand):
    shown = agent_stand.api.documents.registered("a")
    assert shown["status"] == "joining"
    msgspec.convert(shown, RegisteredAgent)
    agent_stand.put("a", "echo", gen=7)
    shown = agent_stand.api.documents.registered("a")
    assert (shown["status"], shown["gen"], shown["current_load"], shown["max_concurrency"]) == ("up", 7, 0, 64)


async def test_about_this_sidecar(agent_stand, stand):
    agent_stand.local.set_draining(True)
    about = agent_stand.api.documents.about()
    assert about["capabilities"] == [{"name": "echo", "aliases": [], "attributes": {}}]
    assert (about["gateway"], about["flags"], about["lease_ttl"]) == (False, ["draining"], 30.0)
    msgspec.convert(about, Self)
    assert stand.api.documents.about()["gateway"] is True


async def test_agents_are_found_by_a_mesh_wide_alias(stand):
    stand.put("a", "email.send")
    stand.put("b", "sum")
    stand.view.take_aliases({"email.send": ["notify.email"]})
    _, found = await stand.json("GET", "/v1/agents?capability=Notify_Email")
    assert [agent["agent_id"] for agent in found["agents"]] == ["a"]
