import io
import json
import re

import pytest

from reach_control.telemetry.log import ControlLog, describe
from reach_core.peer import Capability, Entry, Rank
from reach_core.table import Change


def entry(rank: Rank = Rank.UP, **fields: object) -> Entry:
    return Entry(**({"agent_id": "a", "gen": 5, "ver": 1, "rank": rank, "address": "h:1"} | fields))


def test_a_line_is_one_json_object() -> None:
    out = io.StringIO()
    ControlLog(out=out).event("info", "register", "a", 'up "quoted"\nsecond')
    (line,) = out.getvalue().splitlines()
    record = json.loads(line)
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z", record.pop("ts"))
    assert record == {"level": "info", "event": "register", "agent": "a", "detail": 'up "quoted"\nsecond'}


def test_text_stays_on_one_line() -> None:
    out = io.StringIO()
    ControlLog(form="text", out=out).event("warn", "status", "a", "up\n\x1b[31mforged")
    assert len(out.getvalue().splitlines()) == 1
    assert "\x1b" not in out.getvalue()


def test_levels_below_are_left_out() -> None:
    out = io.StringIO()
    log = ControlLog(level="warn", out=out)
    log.event("info", "register")
    log.event("error", "snapshot")
    assert len(out.getvalue().splitlines()) == 1


def test_a_closed_stderr_does_not_stop_the_node() -> None:
    out = io.StringIO()
    log = ControlLog(out=out)
    out.close()
    log.event("info", "register")


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (
            Change(None, entry(capabilities=(Capability(name="x"),))),
            ("info", "register", "a", "up at h:1: x"),
        ),
        (Change(entry(), entry(gen=6)), ("info", "register", "a", "up at h:1: no capabilities")),
        (Change(entry(Rank.JOINING), entry()), ("info", "status", "a", "joining -> up")),
        (Change(entry(), entry(Rank.SUSPECT)), ("warn", "status", "a", "up -> suspect")),
        (Change(entry(), entry(ver=2, flags=("unfit",))), ("info", "status", "a", "up, unfit")),
        (Change(entry(), entry(ver=2, version="2")), ("info", "status", "a", "up: declaration changed")),
        (Change(entry(), entry().tombstone(9)), ("info", "leave", "a", "left")),
        (Change(entry(Rank.DOWN), entry().tombstone(9)), ("info", "leave", "a", "forgotten after long silence")),
    ],
)
def test_each_change_has_its_event(change: Change, said: tuple[str, str, str, str]) -> None:
    assert describe(change) == said


def test_changes_are_written_in_order() -> None:
    out = io.StringIO()
    ControlLog(out=out).changes([Change(None, entry(Rank.JOINING)), Change(entry(Rank.JOINING), entry())])
    assert [json.loads(line)["event"] for line in out.getvalue().splitlines()] == ["register", "status"]
