"""`python feed.py TARGET SECONDS [SEED]`: feed one target with bytes that libFuzzer makes up (atheris).

Ends with another code than 0 when the target raised, hung for 5 s on one input, or the process grew over 512 MiB; the
input is printed then, and stays in the folder for crashes beside the corpus.
"""

import sys
import tempfile
from pathlib import Path

import atheris

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
with atheris.instrument_imports(include=["reach_core"]):
    from fuzz.targets import TARGETS, seeds

MAX_LEN = 8 * 1024
RSS_MIB = 512
HANG_S = 5


def main(name: str, seconds: int, seed: int) -> None:
    with tempfile.TemporaryDirectory() as folder:
        for number, example in enumerate(seeds(name)):
            (Path(folder) / str(number)).write_bytes(example)
        options = [
            f"-max_total_time={seconds}", f"-seed={seed}", f"-max_len={MAX_LEN}", f"-rss_limit_mb={RSS_MIB}",
            f"-timeout={HANG_S}", f"-artifact_prefix={tempfile.gettempdir()}/reach-fuzz-{name}-", "-print_final_stats=1",
        ]  # fmt: skip
        atheris.Setup([sys.argv[0], folder, *options], TARGETS[name])
        atheris.Fuzz()


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]) if len(sys.argv) > 3 else 0)
