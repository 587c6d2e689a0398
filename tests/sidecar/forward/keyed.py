"""Calls with a key as the calling sidecar sends them, straight to the mesh door of the called one."""

import asyncio
from typing import Any

import pytest
from harness.sidecars import Asked, Mesh, Node, ok, until
from sidecar.http1.raw import Answer, Peer

from reach_sidecar.config import CapabilityConfig

STORED = pytest.mark.parametrize("dedup", ["memory", "durable"])
MADE = "reach-" + "a" * 24 + "-00000001"


def capability(dedup: str, **more: Any) -> CapabilityConfig:
    return CapabilityConfig(name="pay", dedup=dedup, **more)  # type: ignore[arg-type]


def call(key: str | None = "order-1", *fields: str, method: str = "POST", body: bytes = b"work", path: str = "/x",
         caller: str = "a", target: str = "pay", chunked: bool = False) -> bytes:
    """As the calling sidecar sends it."""
    lines = [f"{method} {path} HTTP/1.1", "Host: b", f"Reach-Target: {target}", "Reach-Agent: b",
             f"Reach-Caller: {caller}", *fields]
    if key is not None:
        lines.append(f"Idempotency-Key: {key}")
    if chunked:
        lines.append("Transfer-Encoding: chunked")
        body = b"%x\r\n%b\r\n0\r\n\r\n" % (len(body), body)
    elif method != "HEAD":
        lines.append(f"Content-Length: {len(body)}")
    return "\r\n".join([*lines, "", ""]).encode() + (b"" if method == "HEAD" else body)


async def ask(inner: Mesh, node: Node, key: str | None = "order-1", *fields: str, method: str = "POST",
              **more: Any) -> Answer:
    return await inner.raw(node, call(key, *fields, method=method, **more), method=method, door="mesh")


async def begin(inner: Mesh, node: Node, data: bytes) -> Peer:
    client = await inner.connect(node, "mesh")
    await client.send(data)
    return client


def once(node: Node) -> Any:
    layer = node.sidecar._mesh.service.handler._call  # type: ignore[attr-defined]
    while type(layer).__name__ != "Once":
        layer = layer._inner
    return layer


async def settled(node: Node) -> None:
    await until(lambda: not len(once(node)))
    stores = node.sidecar.stores
    for store in (stores.memory, stores._durable):
        if store is not None:
            await store.settle()


def own_fields(answer: Answer) -> list[tuple[str, str]]:
    """Those of the agent's answer, as they are."""
    ours = ("reach-load", "reach-journal", "reach-retries-left")
    return [field for field in answer.headers if field[0].lower() not in ours]


class Gate:
    """An agent that answers `answer` when it is let."""

    def __init__(self, answer: bytes = ok()) -> None:
        self.answer = answer
        self.open = asyncio.Event()

    async def __call__(self, asked: Asked, writer: asyncio.StreamWriter) -> None:
        await self.open.wait()
        writer.write(self.answer)


class Slow:
    """Holds the journal's writer back until it is let go."""

    def __init__(self, node: Node, only: str) -> None:
        journal = node.sidecar.stores._journal
        assert journal is not None
        self._write = journal.write
        self._only = only
        self.go = asyncio.Event()
        self.waiting = 0
        journal.write = self._held  # type: ignore[method-assign]

    async def _held(self, sql: str, values: Any) -> int:
        if self._only in sql:
            self.waiting += 1
            await self.go.wait()
        return await self._write(sql, values)
