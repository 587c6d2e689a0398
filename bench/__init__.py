"""Measures Agent-Reach beside Envoy, on this machine, in one run.

`python -m bench` starts a pair of sidecars and a pair of Envoys in front of the same agent, loads them by
turns, and writes `bench/results/*.json` and the table in `docs/performance.md`. Absolute times differ from
machine to machine and hour to hour; what it reports are ratios of figures taken seconds apart.
"""
