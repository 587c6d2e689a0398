import msgspec
import pytest

from reach_core.keyring import KEY_ID_BYTES, Keyring, Signer, key_id
from reach_core.peer import Entry, Rank, pack_entry, unpack_entry, with_signature

ENTRY = Entry(agent_id="a", gen=1, ver=1, rank=Rank.UP, address="h:1")
SIGNER, OTHER = Signer(b"1" * 32), Signer(b"2" * 32)


def signed(signer: Signer = SIGNER) -> Entry:
    return signer.sign(msgspec.structs.replace(ENTRY))


def test_what_a_known_key_signed_is_good_after_travelling() -> None:
    ring = Keyring([SIGNER.public, OTHER.public])
    for one in (signed(), signed(OTHER)):
        travelled = unpack_entry(pack_entry(one))
        assert ring.knows(travelled)
        assert ring.verify(travelled)


def test_a_tombstone_is_signed_like_any_entry() -> None:
    assert Keyring([SIGNER.public]).verify(SIGNER.sign(ENTRY.tombstone(0)))


@pytest.mark.parametrize(
    "forged",
    [
        msgspec.structs.replace(ENTRY),
        signed(OTHER),
        with_signature(msgspec.structs.replace(ENTRY, address="evil:1"), signed().signature),
        with_signature(msgspec.structs.replace(ENTRY, ver=2), signed().signature),
        with_signature(msgspec.structs.replace(ENTRY), key_id(SIGNER.public) + signed(OTHER).signature[KEY_ID_BYTES:]),
        with_signature(msgspec.structs.replace(ENTRY), signed().signature[:-1]),
        with_signature(msgspec.structs.replace(ENTRY), key_id(SIGNER.public)),
        with_signature(msgspec.structs.replace(ENTRY), b""),
    ],
    ids=["unsigned", "unknown key", "other address", "other version", "other key's", "short", "no signature", "empty"],
)
def test_forged(forged: Entry) -> None:
    assert not Keyring([SIGNER.public]).verify(forged)


def test_keys_overlap_while_they_change_and_are_gone_afterwards() -> None:
    ring = Keyring([SIGNER.public])
    assert not ring.verify(signed(OTHER))
    ring.replace([SIGNER.public, OTHER.public])
    assert ring.verify(signed())
    assert ring.verify(signed(OTHER))
    ring.replace([OTHER.public])
    assert not ring.verify(signed())
    assert not ring.knows(signed())
    assert ring.verify(signed(OTHER))


def test_what_is_no_key_is_left_out() -> None:
    ring = Keyring([b"short", b"", SIGNER.public, b"\0" * 32])
    assert ring.verify(signed())
    assert not ring.verify(with_signature(msgspec.structs.replace(ENTRY), key_id(b"\0" * 32) + bytes(64)))


def test_a_seed_has_32_bytes() -> None:
    with pytest.raises(ValueError, match="32"):
        Signer(b"x")
