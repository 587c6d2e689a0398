"""Names on the wire, and which of them stop at which hop.

All names are lower case, as look-ups use them. Sources: RFC 9110 §7.6.1 (hop-by-hop), design "Headers".
"""

# Connection management ends at each hop, and so does what `Connection` names. `Content-Length` does not: a body
# whose length is known keeps it, in its place.
HOP_BY_HOP = frozenset({
    b"connection", b"keep-alive", b"proxy-connection", b"proxy-authenticate", b"proxy-authorization",
    b"te", b"transfer-encoding", b"upgrade", b"expect",
})

# What a sidecar says and an agent may not: dropped where an agent's request enters.
SIDECAR_ONLY = frozenset({
    b"reach-caller", b"reach-attempt", b"reach-agent", b"reach-journal", b"reach-load", b"reach-refused",
    b"reach-trace-id", b"reach-attempts", b"reach-matched", b"reach-fault", b"reach-scope",
})

# What names or steers the target: for the calling sidecar, never for the called agent.
TARGETING = frozenset({b"reach-target", b"reach-require", b"reach-prefer", b"reach-agent"})

# What an answer may carry between sidecars only: stripped from agents' answers and before the caller sees it.
MESH_ANSWER = frozenset({b"reach-refused", b"reach-load", b"reach-journal", b"reach-fault",
                         b"reach-retries-left"})


def named_by_connection(value: bytes) -> frozenset[bytes]:
    """The field names a `Connection` value makes hop-by-hop, folded."""
    return frozenset(token.strip().lower() for token in value.split(b",") if token.strip())
