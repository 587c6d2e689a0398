"""Whose keys count, and which secret: what a push says of them is believed if a node of the configuration says so, too.

Whoever reaches the listener can send a push that names any keys as its own, and with such keys he could write entries.
So keys that are new here, and a secret that is older than ours, are looked up at the addresses in `peers`, which the
operator chose: the keys that those name count, and a secret if the keys of datagrams follow from it there. They name
keys of nodes that are gone, too, for a node that starts anew needs those of its predecessor. Entries signed with other
keys are left out, and come by comparison once their key is known.

What those nodes say is remembered for a moment, so a flood of pushes does not become one of questions.
"""

import asyncio
from collections.abc import Iterable, Sequence

from reach_control.identity.keys import NodeKeys
from reach_control.membership.client import Client, Unanswered
from reach_control.telemetry.log import ControlLog
from reach_core.gossip.seal import derive
from reach_core.messages import MeshInfo, NodePush

ASK_S = 2.0
RECENT_S = 1.0
SAY_EVERY_S = 60.0


class Confirmation:
    """`urls` are those of `peers`."""

    def __init__(self, urls: Sequence[str], keys: NodeKeys, client: Client, log: ControlLog) -> None:
        self._urls = urls
        self._keys = keys
        self._client = client
        self._log = log
        self._loop = asyncio.get_running_loop()
        self._asking = asyncio.Lock()
        self._infos: list[MeshInfo] = []
        self._asked_at = float("-inf")
        self._say_again_at = float("-inf")

    async def learn(self, push: NodePush, now_ms: int) -> bool:
        """Take over what is new of its keys and its secret, as far as it is confirmed. True if there was any."""
        keys = self._keys
        known = keys.keyring.publics
        new = [public for public in push.keys if public not in known]
        is_older = keys.is_older(push.secret, push.made_ms)
        is_new = keys.learn((public for public in push.keys if public in known), now_ms)
        if not new and not is_older:
            return is_new
        infos = await self._ask()
        confirmed = {public for info in infos for public in info.keys}
        is_new = keys.learn(confirmed.difference(known), now_ms) or is_new
        is_secret = is_older and any(_follows(push.secret, info) for info in infos)
        if is_secret and keys.adopt(push.secret, push.made_ms):
            is_new = True
            self._log.event("info", "secret", detail=f"The mesh's secret of {push.node} is older, so it holds.")
        if not confirmed.issuperset(new) or is_older > is_secret:
            self._say(push.node)
        return is_new

    async def _ask(self) -> list[MeshInfo]:
        """What the nodes of the configuration say, as far as they answer."""
        async with self._asking:
            if self._loop.time() - self._asked_at >= RECENT_S:
                answers = await asyncio.gather(*(self._info(url) for url in self._urls))
                self._infos = [info for info in answers if info is not None]
                self._asked_at = self._loop.time()
            return self._infos

    async def _info(self, url: str) -> MeshInfo | None:
        try:
            async with asyncio.timeout(ASK_S):
                return await self._client.info(url)
        except (Unanswered, TimeoutError):
            return None

    def _say(self, node: str) -> None:
        now = self._loop.time()
        if now < self._say_again_at:
            return
        self._say_again_at = now + SAY_EVERY_S
        detail = (f"What calls itself {node} names signing keys, or a secret, that no node in `peers` confirms: they "
                  "do not count. If it is a control node of this mesh, write its URL into `peers` and see that it can "
                  "be reached from here.")
        self._log.event("warn", "node_unconfirmed", detail=detail)


def _follows(secret: bytes, info: MeshInfo) -> bool:
    """Are these the keys of datagrams that the secret gives?"""
    keys: Iterable[tuple[int, bytes]] = info.mesh_keys.items()
    return bool(info.mesh_keys) and all(number >= 0 and derive(secret, number) == key for number, key in keys)
