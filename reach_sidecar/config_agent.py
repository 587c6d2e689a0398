"""The `agent` section: the agent beside this sidecar and what it can do."""

from typing import Annotated, Literal

import msgspec

from reach_core.peer import Capability
from reach_core.settings.scalar import (
    AgentId,
    AttributeName,
    AttributeValue,
    Between,
    CapabilityName,
    Duration,
    KeyPlace,
    PlainServerUrl,
    Text,
    UrlPath,
    Version,
)
from reach_core.settings.shape import OneOrMany, Section

_DAY_S = 86400.0


class HealthConfig(Section, frozen=True, kw_only=True):
    """How this sidecar checks that the agent is well. Without this section it only tries to connect."""

    path: Annotated[UrlPath | None, "Asked with GET; 200 to 399 is healthy. Without it a TCP connect is enough."] = None
    interval: Annotated[Duration, Between(0.05, 3600), "Time between two checks, varied by 30 %."] = 10.0
    timeout: Annotated[Duration, Between(0.01, 600), "A check that takes longer has failed."] = 2.0
    fail: Annotated[int, Between(1, 100), "Failed checks in a row that make the agent unfit."] = 3


class ProbeConfig(Section, frozen=True, kw_only=True):
    """A real request that is sent rarely, after callers reported failures in a row, to see if the agent works."""

    path: Annotated[UrlPath, "Where the request goes."]
    method: Annotated[Literal["GET", "POST"] | None, "Without it POST where there is a body, else GET."] = None
    body: Annotated[Text | None, "The request's body."] = None
    expect: Annotated[int, Between(100, 599), "The status that means: it works."] = 200


class CapabilityConfig(Section, frozen=True, kw_only=True):
    """One thing the agent can do, and how calls for it are treated."""

    name: Annotated[CapabilityName, "What callers ask for. Case, `_`, `-`, space and `/` make no difference."]
    aliases: Annotated[list[CapabilityName], "Other names for the same."] = msgspec.field(default_factory=list)
    attributes: Annotated[
        dict[AttributeName, Annotated[list[AttributeValue], OneOrMany]],
        "What `Reach-Require` and `Reach-Prefer` look at: a value or a list of them for each name.",
    ] = msgspec.field(default_factory=dict)
    path: Annotated[UrlPath, "Where calls go that name no path of their own."] = "/process"
    timeout: Annotated[
        Duration | None, Between(0.001, _DAY_S), "Longest execution. Without it: what remains of the call's total time."
    ] = None
    adaptive: Annotated[
        bool, "Learn the time-out from recent calls: 1.5 times their 95th percentile, never above `timeout`."
    ] = False
    mode: Annotated[Literal["sync"], "How calls are answered."] = "sync"
    idempotent: Annotated[bool, "Running it twice does no harm, so it may be tried again elsewhere."] = False
    dedup: Annotated[
        Literal["off", "memory", "durable"], "Where answers are remembered, so that a repeated call is not run again."
    ] = "memory"
    key: Annotated[
        KeyPlace | None,
        "Where a caller's own key is found: `header:Name`, or `json:/field` in the body. "
        "Without it: the header Idempotency-Key.",
    ] = None
    outcome: Annotated[
        Literal["header", "json"],
        "Where the agent says whether it succeeded: the header Reach-Outcome, or `status` or `success` of a JSON body.",
    ] = "header"
    fallback: Annotated[CapabilityName | None, "The capability that is tried when no agent offers this one."] = None

    def declared(self) -> Capability:
        """The same as the table's entry carries it; names and aliases as they were written."""
        return Capability(
            name=self.name,
            aliases=tuple(self.aliases),
            attributes=self.attributes,
            path=self.path,
            timeout_s=self.timeout,
            adaptive=self.adaptive,
            idempotent=self.idempotent,
            dedup=self.dedup,
            fallback=self.fallback,
            mode=self.mode,
            key=self.key,
            outcome=self.outcome,
        )


class AgentConfig(Section, frozen=True, kw_only=True):
    """The agent beside this sidecar. Leave the section out for a gateway, which only sends calls."""

    id: Annotated[
        AgentId | None, "Its name in the mesh, one live agent each. Without it: this machine's host name."
    ] = None
    version: Annotated[Version | None, "The agent's version, shown to others."] = None
    address: Annotated[
        PlainServerUrl | None, "Where the agent listens. Without it the agent registers itself at run time."
    ] = None
    weight: Annotated[float, Between(0, 1000, above=True), "Its share of calls compared with other agents."] = 1.0
    max_concurrency: Annotated[int, Between(1, 100_000), "Calls the agent works on at the same time."] = 64
    queue: Annotated[int, Between(0, 100_000), "Calls that may wait for a free place."] = 64
    health: Annotated[HealthConfig, "Health checks of the agent."] = msgspec.field(default_factory=HealthConfig)
    probe: Annotated[ProbeConfig | None, "A rare, real request."] = None
    capabilities: Annotated[list[CapabilityConfig], "What it can do; may be empty when the agent registers itself."] = (
        msgspec.field(default_factory=list)
    )
