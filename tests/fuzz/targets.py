"""What is fed with bytes from outside, by name: each takes any bytes, and only its own error may come of them."""

import random
from collections.abc import Callable

from reach_core import messages
from reach_core.gossip import compare, datagram
from reach_core.gossip.machine import Gossip
from reach_core.gossip.seal import MeshKeys
from reach_core.keyring import Keyring, Signer
from reach_core.peer import Entry, Rank, decode_entry, unpack_entry
from reach_core.table import PeerTable

NOW_MS = 1_700_000_000_000
SIGNER = Signer(b"1" * 32)
KEYS = MeshKeys({1: b"k" * 32}, 1)
ENTRIES = [
    SIGNER.sign(Entry(agent_id=f"agent-{n}", gen=NOW_MS, ver=1, rank=Rank.UP, address=f"127.0.0.1:{n + 1}"))
    for n in range(8)
]


class Nobody:
    """A port that does nothing, and counts what it was asked for."""

    def __init__(self) -> None:
        self.asked = 0

    def send(self, address: str, datagram: datagram.Datagram) -> None:
        self.asked += 1

    def pull(self, address: str, agent_ids: list[str]) -> None:
        self.asked += 1

    def compare(self, address: str | None) -> None:
        self.asked += 1


def ignore(*_: object) -> None:
    """No callback."""


def table() -> PeerTable:
    made = PeerTable()
    made.merge(ENTRIES, NOW_MS)
    return made


def fuzz_datagram(data: bytes) -> None:
    try:
        datagram.decode(data)
    except datagram.DatagramError:
        pass


def fuzz_seal(data: bytes) -> None:
    """Nothing that was not sealed opens; what was, does."""
    assert KEYS.open(data) is None
    assert KEYS.open(KEYS.seal(data, b"n" * 12)) == data


def fuzz_machine(data: bytes) -> None:
    """Whatever a member sends, an unsigned table stays as it is and little is sent in answer."""
    try:
        said = datagram.decode(data)
    except datagram.DatagramError:
        return
    port, mine = Nobody(), table()
    machine = Gossip(lambda: "agent-0", mine, Keyring([SIGNER.public]), port, random.Random(1), on_changes=ignore,
                     on_notice=ignore, on_forged=ignore)
    before = mine.hash
    machine.receive(said, "127.0.0.1:9", 1.0, NOW_MS)
    machine.tick(1.0)
    assert mine.hash == before, "an entry that no control node signed was taken"
    assert port.asked <= 8, f"{port.asked} answers to one datagram"


def fuzz_question(data: bytes) -> None:
    """A comparison that another node begins: answered within the bounds, or refused."""
    try:
        asked = compare.decode_question(data)
    except compare.CompareError:
        return
    mine = table()
    if isinstance(asked, compare.Opening):
        answer: compare.Step = compare.differences(mine, asked, random.Random(1))
    else:
        answer = compare.transferred(mine, asked)
    assert len(compare.encode(answer)) <= compare.MAX_BYTES


def fuzz_comparison(data: bytes) -> None:
    """What a peer answers: the next question stays within the bounds."""
    for kind in (compare.Differences, compare.Transferred):
        try:
            said = compare.decode(kind, data)
        except compare.CompareError:
            continue
        if isinstance(said, compare.Differences):
            assert len(compare.encode(compare.transfer(table(), said, "agent-0", random.Random(1)))) <= compare.MAX_BYTES


def fuzz_entry(data: bytes) -> None:
    for read in (decode_entry, unpack_entry):
        try:
            entry = read(data)
        except ValueError:
            continue
        PeerTable().merge([entry], NOW_MS)
        Keyring([SIGNER.public]).verify(entry)


KINDS = [
    messages.RegisterRequest, messages.RegisterAnswer, messages.HeartbeatRequest, messages.HeartbeatAnswer,
    messages.LeaveRequest, messages.LeaveAnswer, messages.TableAnswer, messages.MeshInfo, messages.Hello,
    messages.LookRequest, messages.LookAnswer, messages.ProbeAnswer, messages.NodePush, messages.NodeAnswer,
]  # fmt: skip


def fuzz_messages(data: bytes) -> None:
    for kind in KINDS:
        try:
            message = messages.decode(kind, data)
        except messages.MessageError:
            continue
        if isinstance(message, messages.TableAnswer):
            messages.read_entries(message.entries, message.signatures)
        if isinstance(message, messages.NodePush):
            messages.unpack_entries(message.entries)


TARGETS: dict[str, Callable[[bytes], None]] = {
    name.removeprefix("fuzz_"): function for name, function in list(globals().items()) if name.startswith("fuzz_")
}


def seeds(name: str) -> list[bytes]:
    """Good messages to start from, so that the fuzzer need not find out the format by itself."""
    mine = table()
    opening = compare.opening(mine, "agent-1")
    empty = compare.opening(PeerTable(), "agent-1")
    found = compare.differences(mine, empty, random.Random(1))
    news = datagram.encode(datagram.pack(ENTRIES[:2], "agent-1", 7, 3)[0])
    hinted = datagram.encode(datagram.Datagram(0, "agent-1", 0, 0, (), (datagram.hint_of(ENTRIES[0]),)))
    push = messages.NodePush(node="n", entries=[ENTRIES[0].encoded], renewals=[messages.Renewal("agent-1", 1)])
    by_name: dict[str, list[bytes]] = {
        "datagram": [news, hinted],
        "seal": [KEYS.seal(news, b"n" * 12)[:-1]],
        "machine": [news, hinted],
        "question": [compare.encode(opening), compare.encode(compare.push(ENTRIES, "agent-1"))],
        "comparison": [compare.encode(found), compare.encode(compare.Transferred())],
        "entry": [ENTRIES[0].encoded, ENTRIES[0].tombstone(NOW_MS).encoded],
        "messages": [
            messages.encode(push),
            messages.encode_table("e", 1, True, mine.hash, ENTRIES[:2]),
            b'{"agent_id":"a","instance":"i","address":"h:1","capabilities":[{"name":"x"}],"failures":{"b":3}}',
        ],
    }
    return by_name[name]
