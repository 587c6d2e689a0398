from reach_control.registry.lease import Lease, Terms, next_step
from reach_core.peer import Rank

TERMS = Terms()


def test_silence_moves_an_agent_step_by_step() -> None:
    lease = Lease("a", 1, renewed_s=100.0)
    assert next_step(Rank.JOINING, lease, TERMS) == (Rank.SUSPECT, 130.0)
    assert next_step(Rank.UP, lease, TERMS) == (Rank.SUSPECT, 130.0)
    assert next_step(Rank.SUSPECT, lease, TERMS) == (Rank.DOWN, 160.0)
    assert next_step(Rank.DOWN, lease, TERMS) == (Rank.LEFT, 700.0)


def test_a_renewal_never_shortens_a_lease() -> None:
    lease = Lease("a", 1, renewed_s=100.0)
    lease.renew(90.0)
    assert lease.renewed_s == 100.0
    lease.renew(110.0)
    assert lease.runs(139.9, TERMS)
    assert not lease.runs(140.0, TERMS)


def test_a_lease_that_was_granted_runs_though_nobody_was_heard_of() -> None:
    lease = Lease("a", 1, renewed_s=100.0)
    assert lease.runs(110.0, TERMS)
    assert not lease.is_heard(110.0, TERMS)
    lease.renew(95.0)
    assert (lease.renewed_s, lease.heard_s) == (100.0, 95.0)
    assert lease.is_heard(124.9, TERMS)
    assert not lease.is_heard(125.0, TERMS)
