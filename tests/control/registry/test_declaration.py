import pytest

from reach_control.registry.declaration import entry_of, known_flags
from reach_core.messages import RegisterRequest
from reach_core.peer import Capability, Limits, Rank, owner_of
from reach_core.problem import Problem


def request(**fields: object) -> RegisterRequest:
    return RegisterRequest(**({"agent_id": "a", "instance": "i", "address": "10.0.3.7:7071"} | fields))


def test_what_is_declared_is_in_the_entry() -> None:
    capabilities = (Capability(name="summarize", attributes={"language": ["zh"]}),)
    declared = request(version="1.4", capabilities=capabilities, limits=Limits(queue=0), flags=("unfit", "later"))
    entry = entry_of(declared, "local", 7, 2, Rank.UP)
    assert (entry.agent_id, entry.gen, entry.ver, entry.rank, entry.cluster) == ("a", 7, 2, Rank.UP, "local")
    assert (entry.version, entry.capabilities, entry.limits.queue) == ("1.4", capabilities, 0)
    assert (entry.flags, entry.owner) == (("unfit",), owner_of("i"))


def test_flags_are_sorted_and_known() -> None:
    assert known_flags(("unfit", "draining", "unfit", "other")) == ("draining", "unfit")


@pytest.mark.parametrize(
    ("fields", "says"),
    [
        ({"address": "nowhere"}, "not host:port"),
        ({"address": ":7071"}, "not host:port"),
        ({"address": "h:0"}, "not host:port"),
        ({"address": "h:65536"}, "not host:port"),
        ({"address": "h:99999999999999999999"}, "not host:port"),
        ({"address": "h:٣"}, "not host:port"),
        ({"agent_id": "a/b"}, "not an agent id"),
        ({"capabilities": (Capability(name="x" * 5000),)}, "4096 are allowed"),
    ],
)
def test_what_cannot_be_an_entry(fields: dict[str, object], says: str) -> None:
    with pytest.raises(Problem, match=says) as caught:
        entry_of(request(**fields), "local", 1, 1, Rank.UP)
    assert caught.value.code == "bad_request"
