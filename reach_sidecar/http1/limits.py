"""Bounds of the HTTP engine. Defaults from design §3 (timeouts) and §7 (bounds)."""

from typing import NamedTuple


class Limits(NamedTuple):
    head_bytes: int = 64 * 1024
    url_bytes: int = 16 * 1024
    head_timeout_s: float = 10.0  # from a head's first byte to its last
    idle_timeout_s: float = 75.0  # between requests of one connection
    stream_idle_s: float = 300.0  # without a byte in either direction while a message is under way
    connect_timeout_s: float = 3.0
    write_timeout_s: float = 15.0  # a peer that takes nothing before its answer began
    pipelined: int = 8  # heads read ahead of the one being answered
    linger_s: float = 1.0  # how long a refused client may go on sending before the connection is cut
    max_connections: int = 12_000  # per listener
