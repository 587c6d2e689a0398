"""Only for the optional compiled build: with REACH_COMPILE=1 the modules in compiled.txt become C extensions.

Everything else about the package is in pyproject.toml. mypy has to be installed where this runs, so build with
`--no-build-isolation`; `make compiled` does it all.
"""

import os
from pathlib import Path

from setuptools import setup


def compiled_modules() -> list[str]:
    """The paths in compiled.txt."""
    lines = Path(__file__).with_name("compiled.txt").read_text(encoding="utf-8").splitlines()
    return [line for line in lines if line and not line.startswith("#")]


if os.environ.get("REACH_COMPILE") == "1":
    from mypyc.build import mypycify

    setup(ext_modules=mypycify(compiled_modules(), opt_level="3"))
else:
    setup()
