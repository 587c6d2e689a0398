"""The table as calls read it: by id and by name, as entries come, change and go."""

from random import Random

import msgspec

from reach_core.messages import Load
from reach_core.peer import Capability, Entry, Rank
from reach_core.table import PeerTable
from reach_sidecar.http1.limits import Limits
from reach_sidecar.membership.view import LATELY_S, PeerView

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


def test_mesh_wide_aliases_come_last() -> None:
    world = World()
    world.put("one", "Email_Send")
    world.view.take_aliases({"email-send": ["Notify/Email", "mail"], "sum": ["add"]})
    assert world.found("notify.email") == [("one", "Email_Send", "alias")]
    assert world.view.offers("MAIL")[0].wire_target == b"email.send", "its sidecar knows the name, not the alias"
    assert world.found("email.send") == [("one", "Email_Send", "exact")]
    assert world.found("add") == [], "nobody offers it under any name"
    world.put("two", alias("post", "mail"))
    assert world.found("mail") == [("two", "post", "alias")], "who declares the alias wins"
    world.put("three", "mail")
    assert world.found("mail") == [("three", "mail", "exact")]


def test_mesh_wide_aliases_of_what_is_itself_an_alias() -> None:
    world = World()
    world.put("one", alias("post", "email.send"))
    world.view.take_aliases({"email.send": ["notify.email"]})
    assert world.found("notify.email") == [("one", "post", "alias")]


def test_mesh_wide_aliases_change_as_a_whole() -> None:
    world = World()
    world.put("one", "email.send")
    world.view.take_aliases({"email.send": ["mail"]})
    assert world.view.names_meant("Mail") == {"mail", "email.send"}
    world.view.take_aliases({"email.send": ["post"]})
    assert (world.found("mail"), len(world.found("post"))) == ([], 1)
    assert world.view.names_meant("mail") == {"mail"}


def test_near_knows_mesh_wide_aliases_of_what_is_offered() -> None:
    world = World()
    world.put("one", "email.send")
    world.view.take_aliases({"email.send": ["notify.mail"], "other": ["notify.male"]})
    assert world.view.near("notify.mial") == ["notify.mail"]


def test_whose_load_is_asked_for() -> None:
    world = World()
    for agent_id in ("never", "old", "stale", "fresh", "unheard"):
        world.put(agent_id, "a")
    peers = {peer.agent_id: peer for peer in world.view.peers()}
    peers["old"].called_at = 1000.0 - LATELY_S
    for agent_id in ("stale", "fresh", "unheard"):
        peers[agent_id].called_at = 990.0
    peers["stale"].hear_load(1, 0, 950.0)
    peers["fresh"].hear_load(1, 0, 999.0)
    assert world.view.lately_called(1000.0) == ["unheard", "stale", "fresh"]


def test_load_that_control_tells_counts_unless_the_peer_said_more_lately() -> None:
    world = World()
    for agent_id in ("one", "two", "three"):
        world.put(agent_id, "a")
    one, two, three = world.view.peers()
    one.hear_load(1, 1, 90.0)
    two.hear_load(1, 1, 99.0)
    loads = {name: Load(running=7, queued=3, limit=9, age_s=5.0) for name in ("one", "two", "three", "gone")}
    world.view.hear_loads(loads, 100.0)
    assert [(peer.running, peer.queued, peer.heard_at) for peer in (one, two, three)] == [
        (7, 3, 95.0), (1, 1, 99.0), (7, 3, 95.0)]


def test_table_info() -> None:
    world = World()
    world.put("one", "a")
    world.view.changed_at = 2.0
    assert world.view.table_info(3.5) == {"entries": 1, "hash": world.table.hash, "age_s": 1.5}


def test_whose_calls_failed_lately_and_how_often_in_a_row() -> None:
    world, random = World(), Random(1)
    world.put("good", "x")
    world.put("bad", "x", "y")
    world.put("long.ago", "x")
    for name, at in (("good", 100.0), ("bad", 100.0), ("long.ago", 100.0 - LATELY_S)):
        peer = world.view.peer(name)
        assert peer is not None
        peer.called_at = at
        for capability, times in (("x", 2), ("y", 3)):
            for _ in range(times if name != "good" else 0):
                peer.track(capability).judge("broken", 0, False, 100.0, random)
    assert world.view.failing(100.0) == {"bad": 3}
