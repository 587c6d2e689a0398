"""One loop for each other control node: tell it what changed, hear where it stands, compare when the two differ."""

import asyncio
import traceback
from collections.abc import Callable, Sequence

import msgspec

from reach_control.identity.keys import NodeKeys
from reach_control.membership.client import Client, Unanswered
from reach_control.nodes.confirm import Confirmation
from reach_control.nodes.tables import Tables
from reach_control.registry.exchange import Exchange
from reach_control.registry.lease import Moment
from reach_control.telemetry.log import ControlLog
from reach_core.gossip.compare import CompareError
from reach_core.messages import NodeAnswer, NodePush
from reach_core.problem import Problem
from reach_core.table import Change

MIN_WAIT_S = 0.01
PAUSE_S = 1.0


class Nodes:
    """`urls` of the others. `apply` is told what changed in the table, `learned` that keys or the secret did; `heard`
    is called when another node has answered, before tables are compared with it. While `is_stale`, nothing of the
    table is told."""

    def __init__(self, urls: Sequence[str], exchange: Exchange, tables: Tables, keys: NodeKeys, client: Client,
                 clock: Callable[[], Moment], apply: Callable[[list[Change]], None], learned: Callable[[], None],
                 heard: Callable[[], None], is_stale: Callable[[], bool], log: ControlLog) -> None:
        self.exchange = exchange
        self._urls = list(dict.fromkeys(url.rstrip("/") for url in urls))
        self._tables = tables
        self._keys = keys
        self._client = client
        self._clock = clock
        self._apply = apply
        self._learned = learned
        self._heard = heard
        self._is_stale = is_stale
        self._log = log
        self._confirmation = Confirmation(self._urls, keys, client, log)
        self._stirred = {url: asyncio.Event() for url in self._urls}
        self._troubles: dict[str, str] = {}
        self._comparing: dict[str, asyncio.Task[None]] = {}
        exchange.peers(self._urls, clock())

    def stir(self) -> None:
        """Something changed: the next push need not wait for its time."""
        for stirred in self._stirred.values():
            stirred.set()

    async def run(self) -> None:
        """Until cancelled."""
        async with asyncio.TaskGroup() as group:
            for url in self._urls:
                group.create_task(self._never_end(url), name=f"node {url}")
            if not self._urls:
                await asyncio.Event().wait()  # for ever: there is nobody to tell

    async def stop(self) -> None:
        """End the comparisons under way; `run` is cancelled by who started it."""
        for task in self._comparing.values():
            task.cancel()
        await asyncio.gather(*self._comparing.values(), return_exceptions=True)

    async def receive(self, push: NodePush) -> NodeAnswer:
        """Another node tells. Raises Problem where none is expected to."""
        if not self._urls:
            raise Problem("not_allowed", "This control node has no `peers`, so it takes nothing from other nodes. "
                          "Write the URL of the node that tells into `peers` of this one's configuration.")
        if push.node != self._keys.node and await self._confirmation.learn(push, self._clock().ms):
            self._learned()
        answer, changes = self.exchange.receive(push, self._clock())
        self._apply(changes)
        return answer

    async def reach_any(self, within_s: float) -> bool:
        """Does another node answer? For one that was away and decides what to begin with."""
        async def ask(url: str) -> bool:
            try:
                await self._client.info(url)
            except Unanswered:
                return False
            return True

        tasks = [asyncio.ensure_future(ask(url)) for url in self._urls]
        if not tasks:
            return False
        done, pending = await asyncio.wait(tasks, timeout=within_s)
        for task in pending:
            task.cancel()
        return any(task.result() for task in done)

    async def _never_end(self, url: str) -> None:
        """What is wrong with one node must not end the telling of the others."""
        while True:
            try:
                await self._keep_telling(url)
            except Exception:
                self._log.event("error", "internal", detail=f"{url}: {traceback.format_exc(limit=-5)}")
                await asyncio.sleep(PAUSE_S)

    async def _keep_telling(self, url: str) -> None:
        while True:
            stirred = self._stirred[url]
            stirred.clear()
            wait_s = self.exchange.due_s(url, self._clock())
            if wait_s > 0:
                try:
                    async with asyncio.timeout(max(MIN_WAIT_S, wait_s)):
                        await stirred.wait()
                except TimeoutError:
                    pass
                continue
            await self._tell(url)
            if url not in self._comparing and self.exchange.compare_due(url, self._clock()):
                task = self._comparing[url] = asyncio.create_task(self._compare(url), name=f"compare {url}")
                task.add_done_callback(lambda _: self._comparing.pop(url, None))

    async def _tell(self, url: str) -> None:
        try:
            answer = await self._client.push(url, self._next_push(url))
        except Unanswered as error:
            self.exchange.failed(url, self._clock(), f"{error}.")
            self._say(url, f"The control node {url} is not told of changes: {error}. It is tried again. Start it, or "
                      "take it out of `peers` if it is gone for good.")
            return
        self.exchange.answered(url, answer, self._clock())
        if answer.node != self._keys.node:
            self._heard()
        self._say(url, "")

    def _next_push(self, url: str) -> NodePush:
        secret, made_ms = self._keys.secret
        push = self.exchange.push(url, self._clock())
        if self._is_stale():  # whoever answers makes this node begin anew
            push = msgspec.structs.replace(push, entries=[], renewals=[], hash="")
        return msgspec.structs.replace(push, keys=self._keys.own_publics(), secret=secret, made_ms=made_ms)

    async def _compare(self, url: str) -> None:
        is_same = False
        try:
            is_same = await self._tables.compare(lambda data: self._client.compare(url, data), url)
        except (Unanswered, CompareError) as error:
            self._log.event("info", "compare", detail=f"Tables could not be compared with {url}: {error}.")
        finally:
            self.exchange.compared(url, is_same, self._clock())

    def _say(self, url: str, trouble: str) -> None:
        """Each turn once, not each failure."""
        before = self._troubles.get(url)
        if bool(trouble) == bool(before) and before is not None:
            return
        self._troubles[url] = trouble
        if trouble:
            self._log.event("warn", "node_lost", detail=trouble)
        else:
            self._log.event("info", "node_found", detail=f"The control node {url} answers.")
