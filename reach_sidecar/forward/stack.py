"""The two stacks, outermost layer first. The order is the behaviour.

    calling side:  observe -> rescue -> target -> pin -> attempt -> send
    called side:   observe -> rescue -> authorise -> once -> admit -> deliver
"""

from collections.abc import Callable
from random import Random

from reach_core.problem import Problem
from reach_sidecar.forward.admit import Admit, Room
from reach_sidecar.forward.attempt import Attempt
from reach_sidecar.forward.authorise import Authorise
from reach_sidecar.forward.cancel import Canceller
from reach_sidecar.forward.chain import Chains
from reach_sidecar.forward.choose import Choose
from reach_sidecar.forward.deliver import Deliver
from reach_sidecar.forward.failure import mesh_mark
from reach_sidecar.forward.fields import load_field
from reach_sidecar.forward.observe import Observe
from reach_sidecar.forward.offers import FindOffers
from reach_sidecar.forward.once import Once
from reach_sidecar.forward.pin import Pin
from reach_sidecar.forward.rescue import Rescue
from reach_sidecar.forward.running import RunningCalls
from reach_sidecar.forward.send import Send
from reach_sidecar.forward.stores import Stores
from reach_sidecar.forward.target import FirstTable, Target
from reach_sidecar.http1.message import Field
from reach_sidecar.membership.local import LocalAgent
from reach_sidecar.membership.view import PeerView
from reach_sidecar.policy.pick import Weights
from reach_sidecar.telemetry.log import LogWriter
from reach_sidecar.telemetry.metrics import Metrics

Marks = Callable[[Problem], list[Field]]


def outbound_stack(*, local: LocalAgent, view: PeerView, first_table: FirstTable, canceller: Canceller,
                   running: RunningCalls, stores: Stores, instance: str, weights: Weights, default_timeout_s: float,
                   log: LogWriter, metrics: Metrics, chains: Chains, random: Random) -> Observe:
    """The calling side. `running` are the calls that the local agent works on: its own calls inherit from them;
    `instance` is this sidecar's own random name."""
    find = FindOffers(view)
    send = Send(random=random, canceller=canceller, chains=chains)
    choose = Choose(view=view, weights=weights, random=random)
    attempt = Attempt(send, view=view, find=find, choose=choose, random=random, log=log, counters=metrics,
                      chains=chains)
    pin = Pin(attempt, view=view, stores=stores)
    target = Target(pin, local=local, view=view, find=find, first_table=first_table, running=running,
                    instance=instance, default_timeout_s=default_timeout_s)
    rescue = Rescue(target, proxy=lambda: local.agent_id, log=log)
    return Observe(rescue, event="call", side="out", log=log, counters=metrics, random=random)


def mesh_stack(*, local: LocalAgent, deliver: Deliver, room: Room, running: RunningCalls, stores: Stores, mark: Marks,
               default_timeout_s: float, log: LogWriter, metrics: Metrics, random: Random) -> Observe:
    """The called side. `mark` is `mesh_marks(local)`."""
    admit = Admit(deliver, local=local, room=room, running=running)
    once = Once(admit, local=local, stores=stores, counters=metrics)
    authorise = Authorise(once, local=local, default_timeout_s=default_timeout_s)
    rescue = Rescue(authorise, proxy=lambda: local.agent_id, log=log, mark=mark)
    return Observe(rescue, event="deliver", side="in", log=log, counters=metrics, random=random)


def mesh_marks(local: LocalAgent) -> Marks:
    """What every answer of the mesh listener carries that is not the agent's: whose words it is, and the load."""
    return lambda problem: [*mesh_mark(problem), own_load(local)]


def own_load(local: LocalAgent) -> Field:
    """`Reach-Load` of an answer that did not come from the agent."""
    return load_field(local.running, local.queued, local.room, 0.0, 0.0)
