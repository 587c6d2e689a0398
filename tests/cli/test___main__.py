import subprocess
import sys


def test_it_is_the_same_command() -> None:
    shown = subprocess.run([sys.executable, "-m", "reach_cli", "--version"], capture_output=True, text=True, timeout=30)
    assert shown.returncode == 0
    assert shown.stdout.startswith("reach ")
