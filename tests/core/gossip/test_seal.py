import subprocess
import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

from reach_core.gossip.seal import (
    KEY_BYTES,
    KEY_LIFE_MS,
    NONCE_BYTES,
    OVERHEAD,
    MeshKeys,
    derive,
    keys_at,
    number_at,
)

SECRET = b"s" * 32
NONCE = b"n" * NONCE_BYTES
KEYS = MeshKeys({6: b"6" * 32, 7: b"7" * 32, 8: b"8" * 32}, 7)
NOW_MS = 1_700_000_000_000


@given(st.binary(max_size=1200), st.binary(min_size=NONCE_BYTES, max_size=NONCE_BYTES))
def test_what_was_sealed_is_opened_by_whoever_has_the_key(plain: bytes, nonce: bytes) -> None:
    sealed = KEYS.seal(plain, nonce)
    assert len(sealed) == len(plain) + OVERHEAD
    assert KEYS.open(sealed) == plain
    assert MeshKeys({7: b"7" * 32}, 9).open(sealed) == plain


def test_the_layout() -> None:
    sealed = KEYS.seal(b"text", NONCE)
    assert sealed[:17] == b"\x01\x00\x00\x00\x07" + NONCE
    assert len(sealed) == 33 + 4 == OVERHEAD + 4
    assert b"text" not in sealed


@given(st.binary(max_size=200), st.integers(0), st.integers(1, 255))
def test_whatever_byte_is_altered_it_is_noticed(plain: bytes, at: int, by: int) -> None:
    sealed = bytearray(KEYS.seal(plain, NONCE))
    sealed[at % len(sealed)] ^= by
    assert KEYS.open(bytes(sealed)) is None


@given(st.binary(max_size=1300))
def test_any_bytes_are_refused_without_a_fuss(data: bytes) -> None:
    assert KEYS.open(data) is None
    assert KEYS.open(b"\x01\x00\x00\x00\x07" + data) is None


@pytest.mark.parametrize("length", range(OVERHEAD + 4))
def test_what_is_cut_short_is_refused(length: int) -> None:
    assert KEYS.open(KEYS.seal(b"text", NONCE)[:length]) is None


def test_a_datagram_cannot_pass_for_one_of_another_key() -> None:
    """Also where both numbers stand for the same key: the number is sealed with the rest."""
    keys = MeshKeys({7: b"7" * 32, 8: b"7" * 32}, 7)
    sealed = keys.seal(b"text", NONCE)
    assert keys.open(sealed[:4] + b"\x08" + sealed[5:]) is None


@pytest.mark.parametrize(
    ("keys", "current", "can_seal"),
    [
        ({1: b"k" * 32}, 1, True),
        ({1: b"k" * 32}, 2, False),
        ({}, 1, False),
        ({1: b"k" * 16}, 1, False),
        ({1: b""}, 1, False),
        ({-1: b"k" * 32}, -1, False),
        ({0: b"k" * 32}, 0, True),
        ({2**32 - 1: b"k" * 32}, 2**32 - 1, True),
        ({2**32: b"k" * 32}, 2**32, False),
        ({0: b"k" * 32}, 2**32, False),
    ],
)
def test_keys_that_are_none(keys: dict[int, bytes], current: int, can_seal: bool) -> None:
    made = MeshKeys(keys, current)
    assert made.can_seal == can_seal
    if not can_seal:
        with pytest.raises(KeyError):
            made.seal(b"text", NONCE)


@pytest.mark.parametrize("length", [0, 8, 11, 13, 16])
def test_a_nonce_of_another_length_would_move_the_text(length: int) -> None:
    with pytest.raises(ValueError, match="12 bytes"):
        KEYS.seal(b"text", b"n" * length)


@pytest.mark.parametrize("apart_ms", [0, 1, KEY_LIFE_MS // 2, KEY_LIFE_MS - 1, KEY_LIFE_MS])
def test_nodes_whose_clocks_are_up_to_one_life_apart_understand_each_other(apart_ms: int) -> None:
    for now_ms in range(NOW_MS, NOW_MS + KEY_LIFE_MS, KEY_LIFE_MS // 7):
        one = MeshKeys(keys_at(SECRET, now_ms), number_at(now_ms))
        other = MeshKeys(keys_at(SECRET, now_ms + apart_ms), number_at(now_ms + apart_ms))
        assert other.open(one.seal(b"text", NONCE)) == b"text"
        assert one.open(other.seal(b"text", NONCE)) == b"text"


def test_a_key_is_forgotten_after_it_was_the_previous_one() -> None:
    one = MeshKeys(keys_at(SECRET, NOW_MS), number_at(NOW_MS))
    later_ms = NOW_MS + 2 * KEY_LIFE_MS
    assert MeshKeys(keys_at(SECRET, later_ms), number_at(later_ms)).open(one.seal(b"text", NONCE)) is None


def test_keys_follow_from_the_secret_and_the_number_and_are_all_different() -> None:
    made = {derive(secret, number) for secret in (SECRET, b"t" * 32) for number in range(100)}
    assert len(made) == 200
    assert {len(key) for key in made} == {KEY_BYTES}
    assert keys_at(SECRET, NOW_MS)[number_at(NOW_MS)] == derive(SECRET, NOW_MS // KEY_LIFE_MS)
    assert derive(SECRET, 7).hex() == "eb6304ec2f1aa135103edcd48e7caf59186b2167b6064f5850da1985b606e7bc"


def test_who_has_another_secret_is_a_stranger() -> None:
    one = MeshKeys(keys_at(SECRET, NOW_MS), number_at(NOW_MS))
    other = MeshKeys(keys_at(b"t" * 32, NOW_MS), number_at(NOW_MS))
    assert other.open(one.seal(b"text", NONCE)) is None


def test_who_does_not_gossip_does_not_load_the_cipher() -> None:
    code = (
        "import sys, reach_core.gossip.seal, reach_core.gossip.seeds, reach_core.gossip.machine; "
        "print(any(name.startswith('cryptography') for name in sys.modules))"
    )
    said = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60)
    assert said.stdout.strip() == "False"
