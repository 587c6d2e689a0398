from typing import Any

import pytest

from reach_cli.peers_change import AT_FIRST, Board, differences

UNFIT = {"reason": "agent_unfit", "detail": "the health checks of a fail"}
DOWN = {"reason": "agent_down", "detail": "a is suspect"}


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({}, []),
        ({"load": {"running": 1, "queued": 0, "limit": 4, "age_s": 9}}, []),
        ({"load": {"running": 2, "queued": 1, "limit": 4, "age_s": 0}}, ["load 1/4 -> 2/4 +1 queued"]),
        ({"status": "suspect", "excluded": DOWN}, ["up -> suspect"]),
        ({"excluded": UNFIT, "flags": ["unfit"]}, ["agent_unfit: the health checks of a fail"]),
        ({"flags": ["slow"]}, ["+slow"]),
        ({"gen": 2, "ver": 1}, ["registered anew"]),
        ({"version": "1.1", "ver": 2}, ["version 1.0 -> 1.1"]),
        ({"ver": 2}, ["declared again"]),
        ({"capabilities": [{"name": "sum"}, {"name": "add"}]}, ["capabilities +add +sum -plan"]),
        ({"capabilities": [{"name": "plan", "aliases": [], "attributes": {"x": 1}}]}, ["attributes of plan"]),
    ],
)
def test_differences(an_agent: Any, fields: dict[str, Any], words: list[str]) -> None:
    assert differences(an_agent("a", "plan"), an_agent("a", "plan", **fields)) == words


def test_a_board_from_first_to_gone(an_agent: Any) -> None:
    board = Board()
    board.begin()
    first = board.learn(an_agent("a", "plan"))
    assert first is not None
    assert (first.event, first.why) == ("up", AT_FIRST)
    board.learn(an_agent("b", "plan"))
    assert board.complete() == []
    later = board.learn(an_agent("c", excluded=UNFIT))
    assert later is not None
    assert (later.event, later.why) == ("down", "new; agent_unfit: the health checks of a fail")
    down = board.learn(an_agent("a", "plan", status="suspect", excluded=DOWN))
    assert down is not None
    assert (down.event, down.why) == ("down", "up -> suspect")
    left = board.learn(an_agent("a", "plan", status="left", excluded=DOWN))
    assert left is not None
    assert left.event == "down"
    assert [agent["agent_id"] for agent in board.agents] == ["b", "c"]
    assert board.learn(an_agent("a", status="left", excluded=DOWN)) is None


def test_beginning_anew_tells_only_what_is_different(an_agent: Any) -> None:
    board = Board()
    for agent_id in "abc":
        board.learn(an_agent(agent_id))
    board.complete()
    board.begin()
    assert board.learn(an_agent("a")) is None
    changed = board.learn(an_agent("b", version="2"))
    assert changed is not None
    assert changed.why == "version 1.0 -> 2"
    gone = board.complete()
    assert [(one.event, one.agent_id, one.agent["status"]) for one in gone] == [("down", "c", "left")]
