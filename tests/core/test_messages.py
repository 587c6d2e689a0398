import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from reach_core import messages
from reach_core.messages import (
    HeartbeatAnswer,
    HeartbeatRequest,
    Hello,
    LeaveAnswer,
    LeaveRequest,
    Load,
    LookAnswer,
    LookRequest,
    MeshInfo,
    Message,
    MessageError,
    NodeAnswer,
    NodePush,
    ProbeAnswer,
    RegisterAnswer,
    RegisterRequest,
    Renewal,
    TableAnswer,
    decode,
    encode,
    encode_table,
    read_entries,
    unpack_entries,
)
from reach_core.peer import SIGNATURE_BYTES, Capability, Entry, Limits, Rank, pack_entry, with_signature

KINDS = [
    RegisterRequest,
    RegisterAnswer,
    HeartbeatRequest,
    HeartbeatAnswer,
    LeaveRequest,
    LeaveAnswer,
    TableAnswer,
    MeshInfo,
    Hello,
    LookRequest,
    LookAnswer,
    ProbeAnswer,
    NodePush,
    NodeAnswer,
]
NOW_MS = 1_700_000_000_000

EXAMPLES: list[Message] = [
    RegisterRequest(
        agent_id="a",
        instance="i",
        address="h:1",
        capabilities=(Capability(name="x", attributes={"language": ["zh"]}),),
        limits=Limits(weight=2.0),
        flags=("unfit",),
        healthy=True,
        takeover=True,
        load=Load(running=1, queued=2, limit=3),
    ),
    RegisterAnswer(status="registered", agent_id="a", gen=1, ver=2, rank="up", lease_ttl_s=30.0, heartbeat_s=10.0),
    HeartbeatRequest(agent_id="a", instance="i", load=Load(running=1, limit=4), ask=("b", "c"), failures={"b": 3}),
    HeartbeatAnswer(status="ok", gen=1, ver=2, rank="up", lease_ttl_s=30.0, loads={"b": Load(running=3)}),
    LeaveRequest(agent_id="a", instance="i"),
    LeaveAnswer(status="left", agent_id="a"),
    TableAnswer(epoch="e", seq=7, aliases={"email.send": ["notify.email"]}),
    MeshInfo(version=3, aliases={"a": ["b"]}, keys=[bytes(range(32))], mesh_keys={7: b"k" * 32}, mesh_key=7),
    Hello(agent_id="a", owner="0" * 16, gen=4),
    LookRequest(agent_id="a", address="h:1"),
    LookAnswer(alive=False, detail="refused"),
    ProbeAnswer(fit=True),
    NodePush(node="n", url="http://n:7080", epoch="e", seq=4, entries=[b"x"], renewals=[Renewal("a", 1, 0.5, True, 1, 2, 3)],
             keys=[b"k" * 32], secret=b"s" * 32, made_ms=5),
    NodeAnswer(node="n", epoch="e", seq=4, hash="00ff", frozen="why"),
]


@pytest.mark.parametrize("message", EXAMPLES, ids=lambda m: type(m).__name__)
def test_there_and_back(message: Message) -> None:
    assert decode(type(message), encode(message)) == message


@pytest.mark.parametrize("message", EXAMPLES, ids=lambda m: type(m).__name__)
def test_unknown_fields_are_ignored_and_another_protocol_is_refused(message: Message) -> None:
    fields = msgspec.json.decode(encode(message))
    assert decode(type(message), msgspec.json.encode(fields | {"new_field": {"deep": [1]}})) == message
    with pytest.raises(MessageError, match="protocol 2"):
        decode(type(message), msgspec.json.encode(fields | {"protocol": 2}))


def test_a_table_carries_entries_as_the_bytes_they_came_in() -> None:
    live = Entry(agent_id="a", gen=NOW_MS, ver=1, rank=Rank.UP, capabilities=(Capability(name="x"),))
    stone = Entry(agent_id="b", gen=NOW_MS, ver=1, rank=Rank.UP).tombstone(NOW_MS)
    answer = decode(TableAnswer, encode_table("e", 7, True, "00ff", [live, stone], {"x": ["y"]}))
    assert answer.aliases == {"x": ["y"]}
    assert (answer.epoch, answer.seq, answer.full, answer.hash) == ("e", 7, True, "00ff")
    read, unreadable = read_entries(answer.entries)
    assert read == [live, stone]
    assert [e.digest for e in read] == [live.digest, stone.digest]
    assert unreadable == 0


def test_signatures_come_with_their_entries() -> None:
    signature = bytes(range(SIGNATURE_BYTES))
    plain = Entry(agent_id="a", gen=NOW_MS, ver=1, rank=Rank.UP)
    signed = with_signature(Entry(agent_id="b", gen=NOW_MS, ver=1, rank=Rank.UP), signature)
    answer = decode(TableAnswer, encode_table("e", 7, True, "", [plain, signed]))
    read, unreadable = read_entries(answer.entries, answer.signatures)
    assert [(e.agent_id, e.signature) for e in read] == [("a", b""), ("b", signature)]
    packed, bad = unpack_entries([pack_entry(plain), b"x" * 100, pack_entry(signed), b""])
    assert ([(e.agent_id, e.signature) for e in packed], bad) == ([("a", b""), ("b", signature)], 2)
    assert unreadable == 0


def test_one_unreadable_entry_does_not_cost_the_others() -> None:
    good = Entry(agent_id="a", gen=NOW_MS, ver=1, rank=Rank.UP).encoded
    data = b'{"epoch":"e","seq":1,"entries":[["b",1,1,99],%b,{"not":"an entry"},"%b"]}' % (good, b"x" * 5000)
    read, unreadable = read_entries(decode(TableAnswer, data).entries)
    assert [e.agent_id for e in read] == ["a"]
    assert unreadable == 3


@pytest.mark.parametrize("kind", KINDS)
def test_sizes_are_bounded_before_anything_is_parsed(kind: type[Message], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kind, "max_bytes", 100)
    with pytest.raises(MessageError, match="100 are allowed"):
        decode(kind, b" " * 101)


def test_counts_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    ask = msgspec.json.encode({"agent_id": "a", "instance": "i", "ask": ["b"] * (messages.MAX_ASKED + 1)})
    with pytest.raises(MessageError):
        decode(HeartbeatRequest, ask)


@pytest.mark.parametrize("kind", KINDS)
@given(data=st.binary(max_size=400))
def test_any_bytes_give_only_the_documented_error(kind: type[Message], data: bytes) -> None:
    with pytest.raises(MessageError):
        decode(kind, data)


DEEP = [b"[" * 5000, b'{"a":' * 2000]
BAD_VALUES = [b"[]", b"1e999", b"-1", b'"\\ud800"', b"null", b"true", b"9" * 23, *DEEP]


@pytest.mark.parametrize("message", EXAMPLES, ids=lambda m: type(m).__name__)
@pytest.mark.parametrize("bad", BAD_VALUES, ids=lambda b: b[:10].decode())
def test_bad_values_in_any_field(message: Message, bad: bytes) -> None:
    fields = {f.name: msgspec.json.encode(getattr(message, f.name)) for f in msgspec.structs.fields(message)}
    for name in fields:
        broken = b",".join(b'"%b":%b' % (n.encode(), bad if n == name else value) for n, value in fields.items())
        try:
            decode(type(message), b"{" + broken + b"}")
        except MessageError:
            continue


@given(data=st.data())
def test_cut_or_flipped_messages_give_only_the_documented_error(data: st.DataObject) -> None:
    message = data.draw(st.sampled_from(EXAMPLES))
    raw = bytearray(encode(message))
    for _ in range(data.draw(st.integers(0, 4))):
        raw[data.draw(st.integers(0, len(raw) - 1))] = data.draw(st.integers(0, 255))
    try:
        decode(type(message), bytes(raw[: data.draw(st.integers(0, len(raw)))]))
    except MessageError:
        pass
