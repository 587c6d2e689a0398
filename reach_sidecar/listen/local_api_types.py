"""What the local API reads and answers, as types: they decode, they validate, and the OpenAPI document is made
from them, so that it cannot disagree with the code.

Fields may be added, never renamed (design, "Local API"). Unknown fields in requests are ignored, because agents
written for the articles' interface send more than we need.
"""

from typing import Annotated, Any, Literal

import msgspec

from reach_core.peer import AGENT_ID, Capability
from reach_core.units import parse_duration

_VISIBLE = r"^[^\x00-\x20\x7f]([^\x00-\x1f\x7f]*[^\x00-\x20\x7f])?$"

Count = Annotated[int, msgspec.Meta(ge=0)]
Seconds = Annotated[float, msgspec.Meta(ge=0)]
AgentId = Annotated[
    str,
    msgspec.Meta(pattern=f"^{AGENT_ID.pattern}$", description="1 to 63 letters, digits or . _ ~ : -",
                 examples=["summarizer-01"]),
]
CapabilityName = Annotated[
    str,
    msgspec.Meta(min_length=1, max_length=200, pattern=_VISIBLE, examples=["summarize"],
                 description="Upper and lower case are the same, and so are . _ - / and a space."),
]
Token = Annotated[str, msgspec.Meta(min_length=1, max_length=200, pattern=r"^[!-~]+$")]
Duration = Annotated[
    str,
    msgspec.Meta(max_length=30, pattern=r"^([0-9]{1,12}(\.[0-9]{1,9})?(ms|s|m|h|d))+$", examples=["30s", "1500ms"]),
]
SHORTEST_S, LONGEST_S = 0.001, 1_000_000.0
Timeout = Annotated[float, msgspec.Meta(ge=0, le=LONGEST_S, description="seconds")] | Duration
_PORT = "([1-9][0-9]{0,3}|[1-5][0-9]{4}|6[0-4][0-9]{3}|65[0-4][0-9]{2}|655[0-2][0-9]|6553[0-5])"
Address = Annotated[
    str,
    msgspec.Meta(
        max_length=300, examples=["http://127.0.0.1:9001"], description="Where the agent listens, without a path.",
        extra_json_schema={"pattern": f"^(http://)?([A-Za-z0-9]([A-Za-z0-9._-]{{0,250}}[A-Za-z0-9])?|\\[::1\\])(:{_PORT})?/?$"},
    ),
]
Scalar = str | bool | int | float

Reason = Literal[
    "agent_down", "agent_unfit", "unreachable", "breaker", "full", "draining", "mismatch", "not_allowed"
]


# -- peers: GET /v1/agents, GET /v1/agents/{id}, GET /v1/watch


class OfferedCapability(msgspec.Struct):
    name: str
    aliases: list[str]
    attributes: dict[str, list[str]]


class AgentLoad(msgspec.Struct):
    """Calls the agent has now. `age_s`: how old that knowledge is, null if nothing was heard yet."""

    running: Count
    queued: Count
    limit: Count
    age_s: Seconds | None


class Excluded(msgspec.Struct):
    """Why the agent is not called now; `detail` is a sentence."""

    reason: Reason
    detail: str


class Agent(msgspec.Struct):
    """A peer as this sidecar sees it now; `excluded` is null for one that may be called."""

    agent_id: str
    status: Literal["joining", "up", "suspect", "down", "left", "revoked"]
    version: str
    address: str
    capabilities: list[OfferedCapability]
    load: AgentLoad
    gen: Count
    ver: Count
    excluded: Excluded | None
    flags: list[str] = []


class TableInfo(msgspec.Struct):
    """`age_s`: since control last confirmed the table, null while there is none."""

    entries: Count
    hash: str
    age_s: Seconds | None


class AgentList(msgspec.Struct, omit_defaults=True):
    """`near`: names that may have been meant, where nobody offers the capability that was asked for."""

    agents: list[Agent]
    table: TableInfo
    near: list[str] = []


# -- this sidecar: GET /v1/self, GET /v1/wait


class ControlState(msgspec.Struct):
    """`problem` is a sentence about what keeps this sidecar out of the mesh, or null."""

    url: str | None
    connected: bool
    problem: str | None


class Self(msgspec.Struct):
    """`agent_address` is null for a gateway; `address` is where other sidecars reach this one. `outbound`,
    `mesh` and `admin` are the addresses it listens on.
    """

    agent_id: str
    version: str
    address: str
    agent_address: str | None
    gateway: bool
    registered: bool
    flags: list[str]
    capabilities: list[OfferedCapability]
    load: AgentLoad
    lease_ttl: Seconds
    control: ControlState
    table: TableInfo
    sidecar_version: str
    outbound: str = ""
    mesh: str = ""
    admin: str = ""
    pid: Count = 0


class Ready(msgspec.Struct):
    ready: bool
    agents: Count
    waited_s: Seconds


# -- the articles' interface


class Declaration(msgspec.Struct):
    """A capability with details, as in the `capabilities` of the configuration."""

    name: CapabilityName
    aliases: list[CapabilityName] = []
    attributes: dict[str, Scalar | list[Scalar]] = {}
    path: Annotated[str, msgspec.Meta(pattern="^/[!-~]*$", max_length=2000)] = "/process"
    timeout: Timeout | None = None
    idempotent: bool = False
    dedup: Literal["off", "memory", "durable"] = "memory"
    fallback: CapabilityName | None = None
    key: str | None = None
    outcome: Literal["header", "json"] = "header"

    def capability(self) -> Capability:
        """Raises ValueError where a duration cannot be read."""
        return Capability(
            name=self.name,
            aliases=tuple(self.aliases),
            attributes={name: _texts(value) for name, value in self.attributes.items()},
            path=self.path,
            timeout_s=None if self.timeout is None else seconds(self.timeout),
            idempotent=self.idempotent,
            dedup=self.dedup,
            fallback=self.fallback,
            key=self.key,
            outcome=self.outcome,
        )


class RegisterAgent(msgspec.Struct):
    """Declares or changes the local agent. What is left out stays as it was configured or declared before."""

    agent_id: AgentId
    address: Address | None = None
    health_path: Annotated[str, msgspec.Meta(pattern="^/[!-~]*$", max_length=2000)] | None = None
    max_concurrency: Annotated[float, msgspec.Meta(ge=1, le=1_000_000, multiple_of=1)] | None = None
    capabilities: Annotated[list[CapabilityName | Declaration], msgspec.Meta(max_length=200)] | None = None
    version: Annotated[str, msgspec.Meta(max_length=100)] | None = None


class Registered(msgspec.Struct):
    """`lease_ttl` in seconds."""

    status: Literal["registered"]
    agent_id: str
    lease_ttl: float


class AgentHeartbeat(msgspec.Struct):
    """`current_load` is accepted and not needed: the sidecar counts the calls itself."""

    agent_id: str
    current_load: Any = None


class HeartbeatOk(msgspec.Struct):
    status: Literal["ok"]


class RegisteredAgent(Agent, kw_only=True):
    """As `GET /v1/agents/{id}`, with the names of the articles besides."""

    current_load: Count
    max_concurrency: Count


class Health(msgspec.Struct):
    status: Literal["ok"]
    agent_id: str
    registered: bool
    connected: bool
    agents: Count


class RunTask(msgspec.Struct):
    """`timeout` is a number of seconds or a duration such as `30s`. The same `task_id` is the same task."""

    capability: CapabilityName
    task: msgspec.Raw
    timeout: Timeout | None = None
    session_id: Token | None = None
    task_id: Token | None = None


# -- errors


class ProblemAttempt(msgspec.Struct):
    agent: str
    result: str
    ms: float


class ProblemDocument(msgspec.Struct, omit_defaults=True):
    """RFC 9457. `executed`: may an agent have done the work? `detail` is a sentence that says what to do."""

    type: Annotated[str, msgspec.Meta(pattern="^urn:reach:[a-z_]+$")]
    title: str
    status: Annotated[int, msgspec.Meta(ge=400, le=599)]
    detail: str
    executed: Literal["no", "yes", "unknown"]
    attempts: list[ProblemAttempt]
    trace_id: str | None = None
    agent: str | None = None


def seconds(timeout: float | str) -> float:
    """Of a number or a duration, brought to what a call can wait: 1 ms to 11 days. Raises ValueError."""
    given = parse_duration(timeout) if isinstance(timeout, str) else float(timeout)
    return min(max(given, SHORTEST_S), LONGEST_S)


def _texts(value: Scalar | list[Scalar]) -> list[str]:
    return [_text(one) for one in value] if isinstance(value, list) else [_text(value)]


def _text(value: Scalar) -> str:
    return ("true" if value else "false") if isinstance(value, bool) else str(value)
