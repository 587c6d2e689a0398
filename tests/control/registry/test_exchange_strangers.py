"""Nodes that tell this one without being in its list, or under another name than there."""

import random

from harness.owners import Owners

from reach_control.registry.exchange import MOST_STRANGERS, STRANGER_S, Exchange
from reach_core.messages import NodeAnswer, NodePush


class Told:
    """A node with one other in its list."""

    def __init__(self) -> None:
        self.owners = Owners()
        self.exchange = Exchange(self.owners.registry, "control-1", "http://one", random.Random(1), epoch="e",
                                 verify=lambda entry: True)
        self.exchange.peers(["http://two"], self.owners.now)

    def hear(self, node: str, url: str = "") -> None:
        self.exchange.receive(NodePush(node=node, url=url, epoch="x"), self.owners.now)

    def shown(self) -> list[tuple[str, str]]:
        return [(state.id, state.url) for state in self.exchange.nodes(self.owners.now)]


def test_a_stranger_is_shown_while_it_tells_and_not_much_longer() -> None:
    told = Told()
    told.hear("control-9", "http://nine")
    assert told.shown() == [("", "http://two"), ("control-9", "")]
    told.owners.at_s += STRANGER_S - 1
    told.hear("control-9", "http://nine")
    told.owners.at_s += STRANGER_S - 1
    assert ("control-9", "") in told.shown()
    told.owners.at_s += 1
    assert told.shown() == [("", "http://two")]


def test_one_that_is_in_the_list_under_another_name_is_shown_once() -> None:
    told = Told()
    told.hear("control-2", "http://2.internal")
    assert told.shown() == [("", "http://two"), ("control-2", "")]
    told.exchange.push("http://two", told.owners.now)
    told.exchange.answered("http://two", NodeAnswer(node="control-2", epoch="x"), told.owners.now)
    assert told.shown() == [("control-2", "http://two")]
    told.hear("control-2", "http://2.internal")
    assert told.shown() == [("control-2", "http://two")]


def test_strangers_that_are_gone_make_room_for_others() -> None:
    told = Told()
    for n in range(2 * MOST_STRANGERS):
        told.hear(f"control-{n + 10}")
    assert len(told.shown()) == 1 + MOST_STRANGERS
    told.owners.at_s += STRANGER_S
    told.hear("control-100")
    assert told.shown() == [("", "http://two"), ("control-100", "")]
