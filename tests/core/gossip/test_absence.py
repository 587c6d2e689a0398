from reach_core.gossip.absence import MAX_AWAY_S, Absence
from reach_core.peer import TOMBSTONE_LIFE_MS


def test_a_short_absence_is_none() -> None:
    absence = Absence(0.0)
    assert not any(absence.heard(now_s) for now_s in (1.0, MAX_AWAY_S, 2 * MAX_AWAY_S))


def test_a_long_one_lasts_until_the_table_was_loaded_anew() -> None:
    absence = Absence(0.0)
    absence.heard(10.0)
    assert absence.heard(10.0 + MAX_AWAY_S + 1)
    assert absence.heard(10.0 + MAX_AWAY_S + 2)
    absence.reset()
    assert not absence.heard(10.0 + MAX_AWAY_S + 3)


def test_who_is_about_to_tell_asks_without_having_heard() -> None:
    absence = Absence(0.0)
    assert not absence.is_too_long(MAX_AWAY_S)
    assert absence.is_too_long(MAX_AWAY_S + 1)
    assert not absence.ended
    assert absence.heard(MAX_AWAY_S + 2)
    assert absence.is_too_long(MAX_AWAY_S + 3)
    absence.reset()
    assert not absence.is_too_long(MAX_AWAY_S + 3)


def test_it_counts_from_the_start_of_a_node_that_never_heard_anybody() -> None:
    assert Absence(5.0).heard(6.0 + MAX_AWAY_S)


def test_a_clock_that_goes_back_is_no_absence() -> None:
    absence = Absence(100.0)
    absence.heard(50.0)
    assert not absence.heard(100.0 + MAX_AWAY_S)


def test_it_ends_well_before_tombstones_are_forgotten() -> None:
    assert MAX_AWAY_S <= TOMBSTONE_LIFE_MS / 1000 / 2


def test_what_shows_that_it_was_not_away_keeps_an_absence_from_beginning_and_ends_none() -> None:
    absence = Absence(0.0)
    for hours in range(1, 30):
        absence.goes_on(hours * 3600.0)
    assert not absence.heard(30 * 3600.0)
    absence.goes_on(30 * 3600.0 + MAX_AWAY_S + 1)  # it slept, and hears sidecars first
    assert absence.heard(30 * 3600.0 + MAX_AWAY_S + 2)
