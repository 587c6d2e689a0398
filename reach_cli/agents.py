"""How the agents of a table are shown: the shape of `GET /v1/agents`, a row each."""

from collections.abc import Mapping, Sequence
from typing import Any

from reach_cli.terminal import STATUS_COLOURS, paint, table

HEAD = ("agent", "status", "load", "capabilities", "version", "address")


def agents_of(answer: Any) -> list[dict[str, Any]]:
    """The agents of an answer, `{"agents": [...]}`, in order of their ids."""
    agents = answer.get("agents", []) if isinstance(answer, dict) else answer
    return sorted(agents, key=lambda agent: str(agent.get("agent_id", "")))


def show(agents: Sequence[Mapping[str, Any]]) -> str:
    """The agents as a table of text."""
    return table(HEAD, [_row(agent) for agent in agents], STATUS_COLOURS)


def summary(agents: Sequence[Mapping[str, Any]], answer: Any) -> str:
    """One line below the table: how many there are, how fresh this is."""
    up = sum(agent.get("status") == "up" for agent in agents)
    text = f"{len(agents)} agent{'' if len(agents) == 1 else 's'}, {up} up"
    age = answer.get("table", {}).get("age_s") if isinstance(answer, dict) else None
    if isinstance(age, int | float):
        text += f"; the table is {age:.0f} s old"
    return paint(text, "bright_black", err=True)


def why_none(me: Mapping[str, Any], capability: str = "NAME") -> str:
    """Why a sidecar whose `GET /v1/self` is `me` knows nobody: control is away, or there is nobody."""
    problem = (me.get("control") or {}).get("problem")
    return str(problem) if problem else f"Start one: reach run --capability {capability} -- CMD"


def _row(agent: Mapping[str, Any]) -> tuple[str, ...]:
    capabilities = agent.get("capabilities") or []
    names = ", ".join(c if isinstance(c, str) else str(c.get("name", "?")) for c in capabilities)
    excluded = agent.get("excluded")
    status = str(agent.get("status", "?"))
    if excluded and status == "up":
        status = f"up, but {excluded.get('reason', 'excluded')}"
    return (
        str(agent.get("agent_id", "?")),
        status,
        load_text(agent.get("load")),
        names or "-",
        str(agent.get("version") or "-"),
        str(agent.get("address") or "-"),
    )


def load_text(load: Mapping[str, Any] | None) -> str:
    """`2/4 +1 queued`: two run of at most four, one waits. `-` where nothing is known."""
    if not load or load.get("running") is None:
        return "-"
    text = f"{load['running']}/{load['limit']}" if load.get("limit") else str(load["running"])
    return f"{text} +{load['queued']} queued" if load.get("queued") else text


def printable(text: str) -> str:
    """Agents choose their own names and reasons: a control character in one must not reach the terminal."""
    return "".join(c if c.isprintable() else "\N{REPLACEMENT CHARACTER}" for c in text)
