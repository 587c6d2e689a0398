"""What the agent finds in its environment under `reach run`."""

from collections.abc import Mapping

# Every spelling that some client knows. Clients differ: Go and curl match networks, Python and Node only names and
# suffixes. `[::1]` is left out on purpose: httpx raises InvalidURL on it, and it means the same as `::1`.
LOOPBACK = ("localhost", "127.0.0.1", "::1", "127.0.0.0/8", ".localhost")


def agent_environment(inherited: Mapping[str, str], *, outbound: str, admin: str, port: int | None) -> dict[str, str]:
    """`inherited` with the sidecar in it; `outbound` and `admin` are `host:port`.

    `REACH_URL` is where to call; clients that honour `http_proxy` may call `http://CAPABILITY.reach/` instead.
    `PORT` is where the agent is expected to listen.
    """
    url = f"http://{outbound}"
    bypass = no_proxy(inherited.get("no_proxy", ""), inherited.get("NO_PROXY", ""))
    added = {
        "REACH_URL": url,
        "REACH_ADMIN": f"http://{admin}",
        "http_proxy": url,
        "HTTP_PROXY": url,
        "no_proxy": bypass,
        "NO_PROXY": bypass,
    }
    if port is not None:
        added["PORT"] = str(port)
    return {**inherited, **added}


def no_proxy(*inherited: str) -> str:
    """The inherited lists and every spelling of loopback, once each. `*` stays: whoever set it wants no proxy."""
    entries = [entry.strip() for text in inherited for entry in text.split(",")]
    return ",".join(dict.fromkeys(entry for entry in [*entries, *LOOPBACK] if entry))
