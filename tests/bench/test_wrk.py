from pathlib import Path

import pytest

from bench import wrk
from bench.daemon import BenchError

OUTPUT = """Running 4s test @ http://127.0.0.1:1/to/echo/process
  1 threads and 16 connections
Requests/sec:   4321.00

result {"calls": 17284, "seconds": 4.000120, "failed": 0, "broken": 0, "p50_us": 3400, "p99_us": 8100, "max_us": 12000}
"""


def test_takes_the_exact_figures_of_the_script() -> None:
    load = wrk.parse(OUTPUT)
    assert (load.calls, load.p50_ms, load.p99_ms, load.max_ms) == (17284, 3.4, 8.1, 12.0)
    assert load.calls_per_s == pytest.approx(4320.9, abs=0.1)
    load.require_clean("reach")


def test_says_what_wrk_said_when_there_is_no_result() -> None:
    with pytest.raises(BenchError, match="unable to connect"):
        wrk.parse("unable to connect to 127.0.0.1:1 Connection refused\n")


@pytest.mark.parametrize("damage", [("failed\": 0", "failed\": 3"), ("broken\": 0", "broken\": 2"), ("17284", "0")])
def test_a_load_with_failures_is_no_measurement(damage: tuple[str, str]) -> None:
    load = wrk.parse(OUTPUT.replace(*damage))
    with pytest.raises(BenchError, match="reach"):
        load.require_clean("reach")


def test_a_script_sends_more_fields_and_a_key_of_its_own_each_time(tmp_path: Path) -> None:
    plain = wrk.write_script(tmp_path)
    assert "Idempotency-Key" not in plain.read_text()
    texts = [
        wrk.write_script(tmp_path, name="own", headers={"Reach-Timeout": "30s"}, own_keys=True).read_text()
        for _ in range(2)
    ]
    assert all('wrk.headers["Reach-Timeout"] = "30s"\n' in text for text in texts)
    assert all(text.startswith(plain.read_text()) for text in texts)
    assert texts[0] != texts[1], "a second run with the same keys would be answered from memory"


def test_the_request_is_one_kibibyte() -> None:
    assert len(wrk.REQUEST_BODY) == 1024
    assert "%s" not in wrk.SCRIPT % wrk.REQUEST_BODY
