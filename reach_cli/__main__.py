"""`python -m reach_cli`: the same as `reach`, for processes that start others without knowing the PATH."""

from reach_cli.main import main

main()
