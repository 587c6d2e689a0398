from bench import profiling

STACKS = """run (asyncio/runners.py:118);call (reach_sidecar/forward/send.py:31);write (asyncio/transports.py:5) 6
run (asyncio/runners.py:118);call (reach_sidecar/forward/send.py:40) 3
run (asyncio/runners.py:118);call (reach_sidecar/forward/send.py:31) 1
_bootstrap (threading.py:9);Condition.wait (threading.py:320) 50
not a stack
"""


def test_lines_of_one_function_are_added_up() -> None:
    own, within, total = profiling.count(STACKS)
    assert total == 10
    assert own == {"write (asyncio/transports.py)": 6, "call (reach_sidecar/forward/send.py)": 4}
    assert within["run (asyncio/runners.py)"] == 10
    assert within["call (reach_sidecar/forward/send.py)"] == 10


def test_the_summary_gives_microseconds_per_call_and_sums_up_files() -> None:
    lines = profiling.summary(profiling.Profile("reach-a", STACKS, call_us=200.0), top=1).splitlines()
    assert lines[0] == "reach-a: 200 µs of CPU per call, 10 samples"
    assert lines[3] == "     120.0      120.0  write (asyncio/transports.py)"
    assert lines[6:] == ["     120.0  asyncio/transports.py"]
