"""What several calls of one trace leave to a call that may be made for any of them: the gentlest of each."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from reach_sidecar.policy.inherit import Inherited, merge


@pytest.mark.parametrize(("matches", "merged"), [
    ([], None),
    ([(10.0, 2, b"s")], (10.0, 2, b"s")),
    ([(10.0, 2, b"s"), (90.0, 1, b"s")], (90.0, 1, b"s")),  # the latest deadline with the fewest retries
    ([(90.0, 0, b""), (10.0, 2, b"")], (90.0, 0, b"")),
    ([(10.0, 2, b"s"), (10.0, 2, b"t")], (10.0, 2, b"")),   # of which session nobody knows
    ([(10.0, 2, b"s"), (10.0, 2, b"")], (10.0, 2, b"")),
])
def test_merging(matches: list[tuple[float, int, bytes]], merged: tuple[float, int, bytes] | None) -> None:
    assert merge([Inherited(*match) for match in matches]) == merged


MATCHES = st.lists(st.builds(Inherited, st.floats(0, 1e6), st.integers(0, 2), st.sampled_from([b"", b"s", b"t"])),
                   min_size=1)


@given(MATCHES)
def test_nobody_is_cut_off_for_another_and_the_chain_gets_no_more_than_it_has(matches: list[Inherited]) -> None:
    merged = merge(matches)
    assert merged is not None
    assert all(merged.deadline >= match.deadline for match in matches)
    assert all(merged.retries_left <= match.retries_left for match in matches)
    assert merged.session == b"" or all(match.session == merged.session for match in matches)
    assert merge(matches[::-1]) == merged, "in whatever order they came"
