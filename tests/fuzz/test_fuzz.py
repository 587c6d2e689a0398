"""Every decoder of what comes from outside, fed with made-up bytes: by libFuzzer for a moment (long: `make fuzz`), and by
hypothesis with an eye on memory."""

import os
import random
import re
import subprocess
import sys
import tracemalloc
from pathlib import Path

import pytest
from fuzz.targets import TARGETS, seeds
from hypothesis import given
from hypothesis import strategies as st

SECONDS = int(os.environ.get("FUZZ_SECONDS", "2"))
SEED = int(os.environ.get("FUZZ_SEED", "0")) or random.SystemRandom().randrange(1, 2**31)
# What a decoder may hold at most while it reads: so much for each byte, and so much for nothing (keys, a table).
BYTES_PER_BYTE = 250
BYTES_FOR_NOTHING = 256 * 1024


@pytest.mark.parametrize("name", TARGETS)
def test_libfuzzer_finds_nothing(name: str) -> None:
    pytest.importorskip("atheris", reason="atheris is not made for this Python")
    command = [sys.executable, str(Path(__file__).with_name("feed.py")), name, str(SECONDS), str(SEED)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=SECONDS + 60)
    assert done.returncode == 0, f"replay: FUZZ_SEED={SEED} {' '.join(command)}\n{done.stderr[-4000:]}"
    runs = re.search(r"stat::number_of_executed_units:\s+(\d+)", done.stderr)
    assert runs is not None, done.stderr[-2000:]
    assert int(runs[1]) > 50 * SECONDS, "so few runs prove nothing"


@pytest.mark.hypothesis
@pytest.mark.parametrize("name", TARGETS)
@given(data=st.data())
def test_no_input_costs_more_memory_than_its_size_allows(name: str, data: st.DataObject) -> None:
    examples = seeds(name)
    value = data.draw(st.one_of(st.binary(max_size=4096), st.sampled_from(examples).flatmap(_damaged)))
    TARGETS[name](value)  # what is imported or made once does not count
    tracemalloc.start()
    try:
        TARGETS[name](value)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak <= BYTES_FOR_NOTHING + BYTES_PER_BYTE * len(value), f"{peak} bytes for an input of {len(value)}"


@st.composite
def _damaged(draw: st.DrawFn, good: bytes) -> bytes:
    """A good message with some bytes changed, cut or repeated."""
    value = bytearray(good)
    for _ in range(draw(st.integers(0, 4))):
        place = draw(st.integers(0, max(0, len(value) - 1)))
        match draw(st.integers(0, 2)):
            case 0:
                value[place : place + 1] = bytes([draw(st.integers(0, 255))])
            case 1:
                del value[place:]
            case 2:
                value[place:place] = value[max(0, place - 16) : place] * draw(st.integers(1, 8))
    return bytes(value)
