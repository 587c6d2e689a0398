"""What the admin door shows: read through callables, when somebody asks."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from reach_sidecar.listen.admin_ready import Readiness
from reach_sidecar.telemetry.log import LogWriter
from reach_sidecar.telemetry.metrics import Metrics

Document = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Sources:
    """`peers` gets the query parameters and returns the document of `GET /v1/agents`, or raises Problem;
    `about` returns that of `GET /v1/self`; `config` the effective configuration with secrets already hidden;
    `drain` starts draining and returns at once.
    """

    log: LogWriter
    metrics: Metrics
    ready: Callable[[], Readiness]
    peers: Callable[[Mapping[str, str]], Document]
    about: Callable[[], Document]
    config: Callable[[], Document]
    drain: Callable[[], None]
    version: str = ""
