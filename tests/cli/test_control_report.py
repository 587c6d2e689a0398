from typing import Any

import pytest

from reach_cli.control_report import Asked, describe, duration, nodes_of, problems_of


def other(**fields: Any) -> dict[str, Any]:
    return {"id": "two", "url": "http://b:1", "reachable": True, "hash": "aa" * 16, "seq": 7, "behind_s": 0.0,
            "frozen": "", "trouble": "", **fields}  # fmt: skip


def status(*nodes: dict[str, Any], name: str = "one", **fields: Any) -> dict[str, Any]:
    return {
        "cluster": "default", "uptime_s": 4000.0, "ready": True, "seq": 9, "agents": {"up": 3, "suspect": 1},
        "tombstones": 2, "hash": "aa" * 16, "waiting": 1, "snapshot": {"path": "/x/table.sqlite", "problem": None},
        "node": {"id": name, "url": "http://a:1"}, "frozen": None, "nodes": list(nodes), **fields,
    }  # fmt: skip


def asked(document: dict[str, Any] | None, error: str = "") -> Asked:
    return Asked("http://127.0.0.1:7082", document, error)


@pytest.mark.parametrize(
    ("document", "said", "is_failure"),
    [
        (status(other(reachable=False, trouble="The connection was refused.")), "one cannot reach two (http://b:1). The connection was", True),
        (status(other(reachable=False, id="")), "one cannot reach http://b:1.", True),
        (status(other(behind_s=42.0)), "two (http://b:1) has lacked changes of one for 42 s.", True),
        (status(other(behind_s=9.9, hash="bb" * 16)), "The tables of one and two (http://b:1) differ", False),
        (status(other(differs_s=75.0, hash="bb" * 16)), "The tables of one and two (http://b:1) have differed for 1 min", True),
        (status(other(url="", reachable=False)), "two tells one of changes, but is not among its `peers`.", False),
        (status(frozen="4 of 5 agents fell silent."), "4 of 5 agents fell silent.", False),
        (status(snapshot={"path": "/x", "problem": "no room"}), "one cannot write its table to /x: no room", False),
        (status(ready=False), "starting or stopping", False),
        (None, "The control node at http://127.0.0.1:7082 cannot be asked: refused.", True),
    ],
)  # fmt: skip
def test_what_is_wrong_comes_first_with_what_to_do(document: Any, said: str, is_failure: bool) -> None:
    one = asked(document, "" if document else "refused")
    (problem,) = problems_of([one])
    assert said in problem.what
    assert problem.is_failure is is_failure
    assert problem.to_do
    text = describe([one], [problem]).splitlines()
    assert text[0].startswith("WRONG" if is_failure else "note")
    assert said in text[0]
    assert problem.to_do in text[1]


def test_failures_come_before_notes() -> None:
    found = problems_of([asked(status(other(reachable=False), frozen="Just started."))])
    assert [problem.is_failure for problem in found] == [True, False]


def test_all_is_well() -> None:
    one = asked(status(other()))
    assert problems_of([one]) == []
    text = describe([one], [])
    assert text.startswith("ok  2 control nodes, all reachable, one table.")
    assert "running  1 h 6 min" in text
    assert "3 up, 1 suspect; 2 removed ones remembered" in text
    assert "!" not in text


def test_a_hash_that_differs_is_marked() -> None:
    one = asked(status(other(hash="bb" * 16)))
    text = describe([one], problems_of([one]))
    assert f"{'bb' * 6} !" in text
    assert f"{'aa' * 6} !" not in text
    assert "! another table than that of one" in text


def test_a_node_that_does_not_say_its_hash_is_not_marked() -> None:
    assert "!" not in describe([asked(status(other(hash="")))], [])


def test_both_asked_each_as_it_is_and_as_the_other_sees_it() -> None:
    """The network lets through in one direction only: both answer us, and yet something is wrong."""
    first = asked(status(other(reachable=False, trouble="No answer.")))
    second = asked(status(other(id="one", url="http://a:1"), name="two", node={"id": "two", "url": "http://b:1"}))
    rows = nodes_of([first, second])
    assert [(row.id, row.reachable, row.trouble) for row in rows] == [("one", True, ""), ("two", False, "No answer.")]
    assert [problem.node for problem in problems_of([first, second])] == ["two (http://b:1)"]


def test_a_list_that_names_the_node_itself_too() -> None:
    assert len(nodes_of([asked(status(other(id="one", url="http://a:1")))])) == 1


def test_an_older_node_says_less() -> None:
    document = status()
    for name in ("node", "nodes", "frozen"):
        del document[name]
    assert "ok  1 control node" in describe([asked(document)], problems_of([asked(document)]))


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(0, "0 s"), (0.04, "0 s"), (4.24, "4.2 s"), (42.9, "42 s"), (185, "3 min 5 s"), (7260, "2 h 1 min"), (273_600, "3 d 4 h")],
)
def test_duration(seconds: float, text: str) -> None:
    assert duration(seconds) == text
