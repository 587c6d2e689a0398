from reach_control.registry.lease import Lease, Terms, next_step
from reach_core.peer import Rank

TERMS = Terms()


def test_silence_moves_an_agent_step_by_step() -> None:
    lease = Lease("a", "i", renewed_s=100.0)
    assert next_step(Rank.JOINING, lease, TERMS) == (Rank.SUSPECT, 130.0)
    assert next_step(Rank.UP, lease, TERMS) == (Rank.SUSPECT, 130.0)
    assert next_step(Rank.SUSPECT, lease, TERMS) == (Rank.DOWN, 160.0)
    assert next_step(Rank.DOWN, lease, TERMS) == (Rank.LEFT, 700.0)


def test_a_renewal_never_shortens_a_lease() -> None:
    lease = Lease("a", "i", renewed_s=100.0)
    lease.renew(90.0)
    assert lease.renewed_s == 100.0
    lease.renew(110.0)
    assert lease.runs(139.9, TERMS)
    assert not lease.runs(140.0, TERMS)
