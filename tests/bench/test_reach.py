import sqlite3
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import yaml

from bench import reach
from bench.daemon import BenchError, Daemon
from reach_control.config import load_control
from reach_sidecar.config import load_sidecar


def test_the_sidecars_configuration_is_a_valid_one(tmp_path: Path) -> None:
    file = tmp_path / "sidecar.yaml"
    config = reach.sidecar_config("reach-b", "127.0.0.1:9", "127.0.0.1:8", tmp_path / "state", [reach.capability("echo")], 40)
    file.write_text(yaml.safe_dump(config))
    loaded = load_sidecar(str(file), {})
    assert loaded.agent is not None
    assert loaded.agent.max_concurrency == 40
    assert [(one.name, one.dedup) for one in loaded.agent.capabilities] == [("echo", "memory")]
    assert loaded.listen.outbound == "127.0.0.1:0"


def test_a_caller_serves_nothing_and_control_takes_any_port(tmp_path: Path) -> None:
    assert reach.sidecar_config("a", "127.0.0.1:9", "127.0.0.1:8", tmp_path, [])["agent"]["capabilities"] == []
    file = tmp_path / "control.yaml"
    file.write_text(yaml.safe_dump(reach.control_config(tmp_path / "state")))
    assert load_control(str(file), {}).listen.api == "127.0.0.1:0"


def test_commits_are_counted_by_the_journals_own_log(tmp_path: Path) -> None:
    (tmp_path / "state-hop").mkdir()
    db = sqlite3.connect(tmp_path / "state-hop" / "delivery.db", isolation_level=None)
    db.execute("PRAGMA journal_mode=WAL")
    db.execute("CREATE TABLE t (x)")
    hop: Any = SimpleNamespace(name="hop")
    before = reach.commits(hop, tmp_path)
    for number in range(5):
        db.execute("BEGIN")
        db.executemany("INSERT INTO t VALUES (?)", [(number,)] * 10)
        db.execute("COMMIT")
    db.execute("PRAGMA wal_checkpoint(PASSIVE)")
    db.execute("INSERT INTO t VALUES (0)")  # the log begins anew, the count goes on
    assert reach.commits(hop, tmp_path) - before == 6
    db.close()


def test_a_sidecar_that_stopped_logging_is_no_measurement(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reach, "LOGGED_WITHIN_S", 0.05)
    with Daemon("hop", ["sleep", "60"], tmp_path) as hop:
        hop.log.write_bytes(bytes(1000))
        reach.require_logged(hop, earlier=0, calls=5)
        with pytest.raises(BenchError, match="hop: not done logging 6 calls"):
            reach.require_logged(hop, earlier=0, calls=6)
