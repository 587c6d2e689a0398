"""A member that lies, with real keys: what it makes up or alters is ignored, counted and named."""

from collections import Counter

import msgspec
import pytest
from sim.world import World, name_of, seeds

from reach_core.gossip.datagram import pack
from reach_core.keyring import Keyring, Signer
from reach_core.peer import Entry, with_signature

SIGNER, STRANGER = Signer(b"1" * 32), Signer(b"2" * 32)


def lies(true: Entry) -> dict[str, Entry]:
    """An entry of one agent, in ways that no control node wrote."""
    newer = msgspec.structs.replace(true, ver=true.ver + 1, address="evil:1")
    return {
        "altered": with_signature(msgspec.structs.replace(newer), true.signature),
        "unsigned": newer,
        "signed by a stranger": STRANGER.sign(msgspec.structs.replace(newer)),
        "a tombstone made up": with_signature(true.tombstone(1_700_000_000_000, ver=true.ver + 1), true.signature),
        "an old one again": true,
    }


@pytest.mark.parametrize("seed", seeds(1))
def test_lies_get_nowhere_and_their_teller_is_named(seed: int) -> None:
    world = World(seed, 20, sign=SIGNER.sign, keyring=Keyring([SIGNER.public]))
    world.run(3.0)
    liar, victim = world.sidecars[name_of(4)], name_of(7)
    true = liar.table.get(victim)
    assert true is not None
    world.refutes([victim])
    for lie in lies(true).values():
        for one in world.sidecars.values():
            if one is not liar:
                liar.send(one.address, pack([lie], liar.agent_id, 0)[0])
    world.run(20.0)
    world.expect(world.all_have(victim, lambda entry: entry is not None and entry.address == true.address), "no lie is taken")
    counts: Counter[str] = Counter()
    for one in world.sidecars.values():
        if one is not liar:
            counts += one.machine.counts
            world.expect((liar.agent_id, victim) in one.forged, f"{one.name} names the liar: {one.forged}")
    assert counts["entries_forged"] == 2 * 19
    assert counts["entries_unknown_key"] == 2 * 19


@pytest.mark.parametrize("seed", seeds(1))
def test_a_flood_of_lies_costs_a_bounded_number_of_verifications(seed: int) -> None:
    class Counting(Keyring):
        verified = 0

        def verify(self, entry: Entry) -> bool:
            Counting.verified += 1
            return super().verify(entry)

    world = World(seed, 4, sign=SIGNER.sign, keyring=Counting([SIGNER.public]))
    world.run(3.0)
    liar, target = world.sidecars[name_of(0)], world.sidecars[name_of(1)]
    Counting.verified = 0
    for second in range(3):
        for number in range(1_000):
            made_up = Entry(agent_id=f"ghost-{second}-{number}", gen=1, ver=1, rank=world.entry(0).rank)
            lie = with_signature(made_up, SIGNER.key_id + bytes(64))
            liar.send(target.address, pack([lie], liar.agent_id, 0)[0])
        world.run(1.0)
    assert Counting.verified <= 200 + 3 * 200 + 50
    world.expect(target.machine.counts["entries_unverified"] > 2_000, "the rest is left alone")
    world.expect(world.is_equal(), "and nothing of it is taken")
