"""What every measurement needs to know of a system: where to call it and which processes to book."""

from dataclasses import dataclass, field

from bench.daemon import Daemon


@dataclass(frozen=True)
class Pair:
    """A system under load. `hops` processes carry each call (none when the agent is called directly)."""

    name: str
    address: str  # host:port that takes the calls
    prefix: str  # what stands before the agent's own path
    hops: tuple[Daemon, ...] = field(default=())

    @property
    def pids(self) -> list[int]:
        return [hop.pid for hop in self.hops]

    def url(self, path: str) -> str:
        return f"http://{self.address}{self.prefix}{path}"


def direct(agent_address: str) -> Pair:
    return Pair("direct", agent_address, "")
