"""The sources are fixed once wired: nobody swaps a figure behind the operator's back."""

import dataclasses

import pytest

from reach_sidecar.listen.admin_ready import Readiness
from reach_sidecar.listen.admin_sources import Sources
from reach_sidecar.telemetry.log import LogWriter
from reach_sidecar.telemetry.metrics import Metrics


def test_sources_are_fixed() -> None:
    sources = Sources(
        log=LogWriter("a"), metrics=Metrics(), ready=lambda: Readiness(True, []),
        peers=lambda query: {}, about=dict, config=dict, drain=lambda: None,
    )  # fmt: skip
    with pytest.raises(dataclasses.FrozenInstanceError):
        sources.drain = lambda: None  # type: ignore[misc]
