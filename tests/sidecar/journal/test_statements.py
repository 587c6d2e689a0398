"""Every statement fits the schema, and those that run for each call find their row by an index."""

import re
import sqlite3

import pytest

from reach_sidecar.journal.statements import statements

SCHEMA = statements("schema")
ALL = [(name, word) for name in ("runs", "notes") for word in statements(name)]
ALL += [("schema", word) for word in SCHEMA if word != "schema"]


@pytest.mark.parametrize(("name", "word"), ALL)
def test_statement_fits_the_schema_and_scans_no_table(name: str, word: str) -> None:
    db = sqlite3.connect(":memory:")
    db.executescript(SCHEMA["schema"])
    sql = statements(name)[word]
    plan = [row[3] for row in db.execute(f"EXPLAIN QUERY PLAN {sql}", (None,) * sql.count("?"))]
    scanned = [step for step in plan if re.search(r"SCAN (run|note)\b(?!.*INDEX)|USE TEMP B-TREE", step)]
    assert not scanned, plan


def test_unknown_file() -> None:
    with pytest.raises(FileNotFoundError):
        statements("nothing")
