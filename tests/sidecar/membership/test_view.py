"""The table as calls read it: by id and by name, as entries come, change and go."""

import msgspec

from reach_core.peer import Capability, Entry, Rank
from reach_core.table import PeerTable
from reach_sidecar.http1.limits import Limits
from reach_sidecar.membership.view import PeerView

NOW_MS = 1_000


class World:
    """A table and the view that follows it."""

    def __init__(self) -> None:
        self.table = PeerTable()
        self.view = PeerView(self.table, Limits())
        self.ver = 0

    def put(self, agent_id: str, *names: str | Capability, **more: object) -> Entry:
        self.ver += 1
        capabilities = tuple(Capability(name=one) if isinstance(one, str) else one for one in names)
        entry = Entry(agent_id=agent_id, gen=1, ver=self.ver, rank=Rank.UP, address="127.0.0.1:1",
                      capabilities=capabilities)
        entry = msgspec.structs.replace(entry, **more)
        self.view.apply(self.table.merge([entry], NOW_MS))
        return entry

    def remove(self, entry: Entry) -> None:
        self.view.apply(self.table.merge([entry.tombstone(NOW_MS)], NOW_MS))

    def found(self, name: str) -> list[tuple[str, str, str]]:
        return sorted((offer.peer.agent_id, offer.capability.name, offer.matched) for offer in self.view.offers(name))


def alias(name: str, *aliases: str) -> Capability:
    return Capability(name=name, aliases=aliases)


def test_by_name_then_by_alias() -> None:
    world = World()
    world.put("one", "summarize", alias("shorten", "summary"))
    world.put("two", alias("digest", "summarize", "summary"))
    assert world.found("summarize") == [("one", "summarize", "exact")], "who has the name wins over an alias"
    assert world.found("SUMMARY") == [("one", "shorten", "alias"), ("two", "digest", "alias")]
    assert world.found("other") == []


def test_names_are_folded() -> None:
    world = World()
    world.put("one", "Text_Summarize", alias("x", "Make Short"))
    for name in ("text.summarize", "TEXT-SUMMARIZE", "text/summarize", "text summarize"):
        assert world.found(name) == [("one", "Text_Summarize", "exact")]
    assert world.found("make-short") == [("one", "x", "alias")]


def test_the_last_one_of_a_name_leaves_it_to_the_alias() -> None:
    world = World()
    one = world.put("one", "summarize")
    world.put("two", alias("digest", "summarize"))
    world.remove(one)
    assert world.found("summarize") == [("two", "digest", "alias")]
    assert world.view.peer("one") is None
    assert len(world.view) == 1


def test_what_is_declared_no_more_is_found_no_more() -> None:
    world = World()
    world.put("one", "a", alias("b", "c", "d"))
    peer = world.view.peer("one")
    world.put("one", alias("b", "d"), "e")
    assert [bool(world.found(name)) for name in "abcde"] == [False, True, False, True, True]
    assert world.view.peer("one") is peer, "what was noticed of it stays"


def test_offers_carry_the_newest_declaration() -> None:
    world = World()
    world.put("one", "a")
    world.put("one", Capability(name="a", path="/new", idempotent=True))
    [offer] = world.view.offers("a")
    assert (offer.capability.path, offer.capability.idempotent) == ("/new", True)


def test_everyone_is_offered_whatever_their_state() -> None:
    """Whether they may be called is decided later, so that the answer can say why not."""
    world = World()
    world.put("one", "a", rank=Rank.DOWN)
    world.put("two", "a", flags=("unfit",))
    assert [agent for agent, _, _ in world.found("a")] == ["one", "two"]


def test_back_after_leaving() -> None:
    world = World()
    entry = world.put("one", "a")
    before = world.view.peer("one")
    world.remove(entry)
    world.put("one", "b", gen=2)
    assert world.view.peer("one") is not before
    assert (world.found("a"), len(world.found("b"))) == ([], 1)


def test_a_tombstone_of_somebody_unknown() -> None:
    world = World()
    world.remove(Entry(agent_id="x", gen=1, ver=1, rank=Rank.UP))
    assert len(world.view) == 0


def test_near() -> None:
    world = World()
    world.put("summarizer-01", "message.push", alias("summarize", "shorten"))
    assert world.view.near("push.message") == ["message.push"]
    assert world.view.near("sumarize") == ["summarize"]
    assert world.view.near("shortn") == ["shorten"]
    assert world.view.near_agents("summarizer-02") == ["summarizer-01"]
    assert world.view.near("zzz") == []


def test_by_id_without_its_case() -> None:
    world = World()
    world.put("Alpha", "a")
    world.put("beta", "a")
    assert world.view.peer("alpha") is None
    found = world.view.peer_folded("alpha")
    assert found is not None
    assert found.agent_id == "Alpha"
    world.put("ALPHA", "a")
    assert world.view.peer_folded("alpha") is None, "two could be meant: nobody is"


def test_table_info() -> None:
    world = World()
    world.put("one", "a")
    world.view.changed_at = 2.0
    assert world.view.table_info(3.5) == {"entries": 1, "hash": world.table.hash, "age_s": 1.5}
