"""Many calls at once, of all kinds, some of which break: every one gets its answer, and nothing is left behind."""

import asyncio
import contextlib
from random import Random

import pytest
from harness.sidecars import Asked, Mesh, Node, ok, request
from sidecar.http1.raw import Peer, reset

from reach_sidecar.config import CapabilityConfig

CALLS = 240
KINDS = ("plain", "long", "chunked", "leaves", "resets", "hurried", "nonsense")


class Moody:
    """An agent that does well mostly."""

    def __init__(self, seed: int) -> None:
        self._random = Random(seed)

    async def __call__(self, asked: Asked, writer: asyncio.StreamWriter) -> None:
        mood = self._random.random()
        if mood < 0.5:
            writer.write(ok(asked.one("X-Call").encode()))
        elif mood < 0.7:
            await asyncio.sleep(self._random.random() * 0.05)
            name = asked.one("X-Call").encode()
            writer.write(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n")
            writer.write(b"%x\r\n%b\r\n" % (len(name), name))
            await asyncio.sleep(0.001)
            writer.write(b"0\r\n\r\n")
        elif mood < 0.8:
            writer.close()
        elif mood < 0.9:
            writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\nhalf")
            await writer.drain()
            reset(writer)
        else:
            await asyncio.sleep(5)


async def one(inner: Mesh, node: Node, number: int, random: Random) -> str:
    """One call; returns what became of it."""
    kind = random.choice(KINDS)
    fields = [f"X-Call: call-{number}", f"Reach-Timeout: {5 if kind == 'hurried' else 400}ms"]
    body = b"x" * random.choice((0, 10, 5_000))
    if kind == "long":
        body = b"x" * 300_000
    elif kind in ("chunked", "nonsense"):
        fields.append("Transfer-Encoding: chunked")
        body = b"5\r\nhello\r\n" + (b"0\r\n\r\n" if kind == "chunked" else b"zz\r\n")
    client: Peer = await inner.connect(node)
    try:
        await client.send(request("/to/summarize/x", *fields, method="POST", body=body))
        if kind in ("leaves", "resets"):
            await asyncio.sleep(random.random() * 0.03)
            if kind == "resets" and not client.writer.is_closing():
                client.reset()
            return kind
        answer = await client.final("POST")
    finally:
        with contextlib.suppress(Exception):
            client.close()
    if answer.code is not None:
        return answer.code
    if not answer.whole:
        return "cut"
    assert answer.body == f"call-{number}".encode(), "the answer to another call"
    return "answered"


@pytest.mark.parametrize("seed", [1, 2, 3])
async def test_a_storm_passes(inner: Mesh, seed: int) -> None:
    random = Random(seed)
    nodes = [await inner.node(f"n{number}", Moody(seed + number),
                              CapabilityConfig(name="summarize", idempotent=number == 0),
                              agent={"max_concurrency": 6, "queue": 10}) for number in range(3)]
    inner.share()
    for node in nodes:
        node.sidecar._mesh.service.abandon_after_s = 0.1
    results: list[str] = []
    todo = iter(range(CALLS))

    async def worker() -> None:
        for number in todo:
            result = await one(inner, random.choice(nodes), number, random)
            results.append(result)

    async with asyncio.timeout(20):
        await asyncio.gather(*(worker() for _ in range(40)))
    assert len(results) == CALLS
    assert not {"internal_error", "not_found", "bad_gateway"} & set(results), results
    assert results.count("answered") > CALLS / 10, f"seed {seed}: {sorted(results)}"
    await inner.idle()
    for node in nodes:
        assert not await node.log(event="defect")
        lines = await node.log(event="call")
        assert len({line["trace_id"] for line in lines}) == len(lines), "one line a call"
