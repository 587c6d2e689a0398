"""What the status documents of control nodes mean, in words: problems first, then each node, then all in a table.

Several nodes may be asked at once. A node then shows as it says itself, and as the others see it: a network that lets
through in one direction only is a problem although each of them answers.
"""

from collections.abc import Sequence
from typing import Any, NamedTuple

from reach_cli.agents import printable
from reach_cli.terminal import paint, table

MOST_BEHIND_S = 10.0
HASH_DIGITS = 12
DIFFERS = "!"
HEAD = ("node", "url", "reachable", "hash", "seq", "behind", "expiry", "trouble")
COLOURS = {"no": "red", "stopped": "yellow"}


class Asked(NamedTuple):
    """One node that was asked at `url`: its document of `GET /v1/status`, or what is wrong instead."""

    url: str
    status: dict[str, Any] | None
    error: str

    @property
    def node(self) -> str:
        own = (self.status or {}).get("node") or {}
        return str(own.get("id") or own.get("url") or self.url)


class Problem(NamedTuple):
    """`is_failure`: exit code 1. Others are to be known, and may pass by themselves."""

    node: str
    what: str
    to_do: str
    is_failure: bool


class Node(NamedTuple):
    """A row: a node as it says itself if it was asked, else as those say that were. `reachable`: None if unknown."""

    id: str
    url: str
    reachable: bool | None
    hash: str
    seq: int | None
    behind_s: float | None
    frozen: str
    trouble: str
    was_asked: bool


# -- what is wrong


def problems_of(asked: Sequence[Asked]) -> list[Problem]:
    """Failures first; in each kind in the order of what was asked."""
    found: list[Problem] = []
    for one in asked:
        if one.status is None:
            what = f"The control node at {one.url} cannot be asked: {one.error}."
            to_do = (
                "Start it with `reach control -c FILE`, or name the admin listener (`listen.admin`) of a running one "
                "with --control URL or $REACH_CONTROL_ADMIN."
            )
            found.append(Problem(one.url, what, to_do, True))
        else:
            found += _of_itself(one.node, one.status)
            for other in one.status.get("nodes") or ():
                found += _of_another(one, other)
    return sorted(found, key=lambda problem: not problem.is_failure)


def _of_itself(name: str, status: dict[str, Any]) -> list[Problem]:
    found = []
    snapshot = status.get("snapshot") or {}
    if snapshot.get("problem"):
        what = f"{name} cannot write its table to {snapshot.get('path')}: {snapshot['problem']}"
        to_do = (
            "Make room there or mend its permissions; it tries again by itself. Do not restart it before: it would "
            "begin with an old table."
        )
        found.append(Problem(name, what, to_do, False))
    if status.get("ready") is False:
        found.append(Problem(name, f"{name} is starting or stopping.", "Ask again in a few seconds.", False))
    if status.get("frozen"):
        what = f"{name} takes nobody for dead because of silence: {status['frozen']}"
        to_do = (
            "Right after its start this ends by itself within one lease. Otherwise look at this node's network and "
            "load first, then at the machines of the agents; after 5 min at most it goes on."
        )
        found.append(Problem(name, what, to_do, False))
    return found


def _of_another(asked: Asked, other: dict[str, Any]) -> list[Problem]:
    """What `asked` says of another node. One without URL is not in its list: it cannot be called unreachable."""
    own = (asked.status or {}).get("node") or {}
    if own.get("id") and other.get("id") == own["id"] and other.get("reachable"):
        return []
    name, trouble = _name(other), str(other.get("trouble") or "")
    if not other.get("url"):
        to_do = f"If it belongs to this mesh, add its URL to `peers` in the configuration of {asked.node}."
        what = f"{name} tells {asked.node} of changes, but is not among its `peers`. {trouble}".rstrip()
        return [Problem(name, what, to_do, False)]
    if not other.get("reachable"):
        to_do = (
            f"See that it runs and that {asked.node} can connect to {other['url']}, or take it out of `peers`. "
            "Its sidecars go on with the other control nodes meanwhile."
        )
        return [Problem(name, f"{asked.node} cannot reach {name}. {trouble}".rstrip(), to_do, True)]
    behind_s = float(other.get("behind_s") or 0.0)
    if behind_s > MOST_BEHIND_S:
        what = f"{name} has lacked changes of {asked.node} for {duration(behind_s)}. {trouble}".rstrip()
        to_do = (
            "Agents that changed meanwhile may be unknown there. Look at its load and its log (level warn); if it "
            "refuses entries, compare `cluster` and the clocks of both machines."
        )
        return [Problem(name, what, to_do, True)]
    differs_s = float(other.get("differs_s") or 0.0)
    if differs_s > MOST_BEHIND_S:
        what = f"The tables of {asked.node} and {name} have differed for {duration(differs_s)}."
        to_do = (
            "One of them refuses what the other has: look at `entries_refused` and `entries_forged` in the metrics and "
            "at the log (level warn) of both, and see that each has the other in its `peers`."
        )
        return [Problem(name, what, to_do, True)]
    if _differ(str(other.get("hash") or ""), str((asked.status or {}).get("hash") or "")):
        what = f"The tables of {asked.node} and {name} differ at this moment."
        return [Problem(name, what, "Under changes that is normal. Ask again: it must not last over 10 s.", False)]
    if trouble:
        return [Problem(name, f"{name}: {trouble}", f"See the log of {asked.node}.", False)]
    return []


def _name(node: dict[str, Any]) -> str:
    """`two (http://…)`, or what of it is known."""
    parts = [str(node[key]) for key in ("id", "url") if node.get(key)]
    return f"{parts[0]} ({parts[1]})" if len(parts) == 2 else (parts or ["an unnamed node"])[0]


def _differ(one: str, other: str) -> bool:
    """Not known is not different."""
    return bool(one and other) and one != other


# -- all nodes


def nodes_of(asked: Sequence[Asked]) -> list[Node]:
    """Those that were asked, then those that they know."""
    rows = [_own_row(one) for one in asked]
    for one in asked:
        for other in (one.status or {}).get("nodes") or ():
            seen = _seen_row(other)
            place = next((n for n, row in enumerate(rows) if _is_same(row, seen)), None)
            if place is None:
                rows.append(seen)
            else:
                rows[place] = _both(rows[place], seen)
    return rows


def _own_row(one: Asked) -> Node:
    if one.status is None:
        return Node("", one.url, False, "", None, None, "", one.error, True)
    status = one.status
    own = status.get("node") or {}
    trouble = str((status.get("snapshot") or {}).get("problem") or "")
    return Node(
        str(own.get("id") or ""), str(own.get("url") or one.url), True, str(status.get("hash") or ""),
        status.get("seq"), None, str(status.get("frozen") or ""), trouble, True,
    )  # fmt: skip


def _seen_row(other: dict[str, Any]) -> Node:
    url = str(other.get("url") or "")
    return Node(
        str(other.get("id") or ""), url, bool(other.get("reachable")) if url else None, str(other.get("hash") or ""),
        other.get("seq"), other.get("behind_s"), str(other.get("frozen") or ""), str(other.get("trouble") or ""), False,
    )  # fmt: skip


def _is_same(row: Node, other: Node) -> bool:
    if row.id and other.id:
        return row.id == other.id
    return bool(row.url) and row.url == other.url


def _both(row: Node, seen: Node) -> Node:
    """The worse of both; figures of the table are fresher from the node itself."""
    reachable = row.reachable if seen.reachable is None else seen.reachable and row.reachable is not False
    behind = [one for one in (row.behind_s, seen.behind_s) if one is not None]
    trouble = "; ".join(dict.fromkeys(part for part in (row.trouble, seen.trouble) if part))
    return row._replace(reachable=reachable, behind_s=max(behind, default=None), trouble=trouble,
                        hash=row.hash or seen.hash, id=row.id or seen.id)


# -- words


def describe(asked: Sequence[Asked], problems: Sequence[Problem]) -> str:
    parts = [_verdict(asked, problems)]
    parts += [_of_one(one) for one in asked if one.status is not None]
    parts.append(_table(nodes_of(asked)))
    return "\n\n".join(parts)


def _verdict(asked: Sequence[Asked], problems: Sequence[Problem]) -> str:
    if not problems:
        count = len(nodes_of(asked))
        what = "1 control node, reachable." if count == 1 else f"{count} control nodes, all reachable, one table."
        return f"{paint('ok', 'green', bold=True)}  {what}"
    lines = []
    for problem in problems:
        head = paint("WRONG", "red", bold=True) if problem.is_failure else paint("note ", "yellow", bold=True)
        lines.append(f"{head}  {printable(problem.what)}\n       {printable(problem.to_do)}")
    return "\n".join(lines)


def _of_one(one: Asked) -> str:
    status = one.status or {}
    own, snapshot = status.get("node") or {}, status.get("snapshot") or {}
    agents = ", ".join(f"{count} {label}" for label, count in status["agents"].items() if count) or "none"
    disk = f"problem: {snapshot['problem']}" if snapshot.get("problem") else "ok"
    rows = [
        ("cluster", str(status.get("cluster") or "-")),
        ("running", f"{duration(float(status.get('uptime_s') or 0.0))}{'' if status.get('ready') else ', not ready'}"),
        ("agents", f"{agents}; {status.get('tombstones', 0)} removed ones remembered"),
        ("table", f"hash {str(status.get('hash') or '-')[:HASH_DIGITS]}, seq {status.get('seq', '-')}"),
        ("expiry", f"stopped: {status['frozen']}" if status.get("frozen") else "runs"),
        ("waiting", f"{status.get('waiting', 0)} requests for news"),
        ("disk", f"{disk} ({snapshot.get('path') or '-'})"),
    ]
    head = paint(printable(f"{one.node}  {own.get('url') or one.url}"), bold=True)
    return "\n".join([head, *(f"  {name:<8} {printable(text)}" for name, text in rows)])


def _table(nodes: Sequence[Node]) -> str:
    reference = next((node.hash for node in nodes if node.hash), "")
    rows = [_row(node, reference) for node in nodes]
    text = table(HEAD, rows, COLOURS)
    if any(_differ(node.hash, reference) for node in nodes):
        text += f"\n{DIFFERS} another table than that of {nodes[0].id or nodes[0].url}"
    return text


def _row(node: Node, reference: str) -> tuple[str, ...]:
    digits = node.hash[:HASH_DIGITS] or "-"
    return (
        node.id or "-",
        node.url or "-",
        {True: "yes", False: "no", None: "-"}[node.reachable],
        f"{digits} {DIFFERS}" if _differ(node.hash, reference) else digits,
        "-" if node.seq is None else str(node.seq),
        "-" if node.behind_s is None else duration(node.behind_s),
        "stopped" if node.frozen else "runs" if node.hash else "-",
        node.trouble or "-",
    )


def duration(seconds: float) -> str:
    """`0 s`, `4.2 s`, `3 min 5 s`, `2 h 1 min`, `3 d 4 h`."""
    if seconds < 10:
        return f"{seconds:.1f} s" if round(seconds, 1) else "0 s"
    rest = int(seconds)
    words: list[str] = []
    for size, unit in ((86400, "d"), (3600, "h"), (60, "min"), (1, "s")):
        count, rest = divmod(rest, size)
        if count or words:
            words.append(f"{count} {unit}")
    return " ".join(words[:2])
