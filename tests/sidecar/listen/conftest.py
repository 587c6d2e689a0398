"""A local API over a view that a test fills by hand."""

import asyncio
from types import SimpleNamespace

import orjson
import pytest

from reach_core.peer import Capability, Entry, Rank
from reach_core.table import PeerTable
from reach_sidecar.http1.body import Body
from reach_sidecar.http1.limits import Limits
from reach_sidecar.http1.message import Request, Response, field
from reach_sidecar.listen.local_api import LocalApi
from reach_sidecar.membership.local import LocalAgent
from reach_sidecar.membership.view import PeerView

NOW_MS = 1_800_000_000_000


class Stand:
    """`calls` are the requests that went to the path of a call; `answer` is what they get."""

    def __init__(self, local=None):
        self.table = PeerTable()
        self.view = PeerView(self.table, Limits())
        self.local = local or LocalAgent("gateway", provisional=True)
        self.membership = SimpleNamespace(
            synced=asyncio.Event(), registered=asyncio.Event(), lease_ttl_s=30.0, connected=False,
            control_url="http://127.0.0.1:7080", problem=None, refusal=None, address="127.0.0.1:7071",
            table_age_s=lambda now: 1.5, settled=self._settled)
        self.verdict = None
        """What control will say, a moment later, of the agent as it is by then."""
        self.calls = []
        self.answer = Response.json(200, {"done": True})
        self.api = LocalApi(self.local, self.view, self.membership, self._call)

    async def _settled(self):
        await asyncio.sleep(0.01)
        self.membership.refusal = self.verdict

    async def _call(self, request):
        self.calls.append(request)
        return self.answer

    def put(self, agent_id, *capabilities, rank=Rank.UP, gen=1, ver=0, **fields):
        declared = tuple(one if isinstance(one, Capability) else Capability(name=one) for one in capabilities)
        self.merge(Entry(agent_id=agent_id, gen=gen, ver=ver, rank=rank, address="127.0.0.1:1",
                         capabilities=declared, **fields))

    def remove(self, agent_id):
        self.merge(self.table.get(agent_id).tombstone(NOW_MS))

    def merge(self, entry):
        changes = self.table.merge([entry], NOW_MS)
        self.view.apply(changes)
        self.api.table_changed(changes)

    async def ask(self, method, url, document=None, **headers):
        """The Response itself."""
        path, _, query = url.partition("?")
        data = document if isinstance(document, bytes) else b"" if document is None else orjson.dumps(document)
        body = Body()
        if data:
            body.feed(data)
        body.finish()
        fields = [field(name.replace("_", "-"), value) for name, value in headers.items()]
        return await self.api.handle(Request(method.encode(), url.encode(), 11, fields, body), path, query)

    async def json(self, method, url, document=None, **headers):
        """`(status, document)`."""
        response = await self.ask(method, url, document, **headers)
        return response.status, orjson.loads(response.body)


@pytest.fixture
async def stand():
    one = Stand()
    yield one
    one.api.close()


@pytest.fixture
async def agent_stand():
    one = Stand(LocalAgent("a", address="http://127.0.0.1:9001", declared=(Capability(name="echo"),)))
    yield one
    one.api.close()
