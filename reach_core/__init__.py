"""The vocabulary both daemons share: pure values and decisions, no I/O, no clock, no global random."""

__version__ = "0.1.0"
