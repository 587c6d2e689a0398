"""Many sidecars with their agents in one process, each on its own ports: a crowd for the tests of the control plane.

`crowd.py --count 25 --first 0 --control URL --control URL --ready-file FILE --folder DIR`: agents `crowd-0` … each
offering `work` and answering with their id. With `--calls N` the process also makes N calls a second, spread over its
sidecars, and writes what came of them into `DIR/calls-<first>.json` when it ends (SIGTERM). `--loss 0.2 --delay 0.05` is
what the sidecars' datagrams suffer on their way out.
"""

import argparse
import asyncio
import json
import os
import random
import signal
import sys
import time
from pathlib import Path

import uvloop

sys.path.insert(0, str(Path(__file__).resolve().parents[3]))

from reach_sidecar.app import Sidecar
from reach_sidecar.config import AgentConfig, CapabilityConfig, DrainConfig, ListenConfig, SidecarConfig


async def agent(name: str) -> str:
    """A plain HTTP agent that answers everything with its name; its address."""
    body = name.encode()
    answer = b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%b" % (len(body), body)

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while head := await reader.readuntil(b"\r\n\r\n"):
                if b"ontent-" in head:
                    length = next((int(line.partition(b":")[2]) for line in head.lower().split(b"\r\n")
                                   if line.startswith(b"content-length")), 0)
                    await reader.readexactly(length)
                writer.write(answer)
        except (asyncio.IncompleteReadError, ConnectionError):
            pass
        finally:
            writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    return f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"


class Calls:
    """Calls through the crowd's own sidecars, at a steady rate, and what came of them."""

    def __init__(self, outbound: list[str], per_s: float) -> None:
        self.outbound = outbound
        self.per_s = per_s
        self.good = 0
        self.bad: list[str] = []

    async def run(self) -> None:
        loop = asyncio.get_running_loop()
        began, made = loop.time(), 0
        async with asyncio.TaskGroup() as group:
            while True:
                await asyncio.sleep(max(0.0, began + made / self.per_s - loop.time()))
                group.create_task(self.call(self.outbound[made % len(self.outbound)]))
                made += 1

    async def call(self, address: str) -> None:
        host, _, port = address.rpartition(":")
        try:
            async with asyncio.timeout(20):
                reader, writer = await asyncio.open_connection(host, int(port))
                writer.write(b"GET /to/work/x HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")
                answer = await reader.read()
                writer.close()
        except (OSError, TimeoutError) as error:
            self.bad.append(f"{time.time():.3f} {error!r}")
            return
        if answer.startswith(b"HTTP/1.1 200"):
            self.good += 1
        else:
            self.bad.append(f"{time.time():.3f} {answer[-600:].decode('utf-8', 'replace')}")


def spoil_the_way(sidecar: Sidecar, loss: float, delay_s: float) -> None:
    """Datagrams of this sidecar get lost and come late from now on."""
    datagrams = sidecar._datagrams
    assert datagrams is not None
    send, chance = datagrams.send, random.Random(os.urandom(8))

    def spoiled(data: bytes, address: str) -> None:
        if chance.random() >= loss:
            asyncio.get_running_loop().call_later(delay_s, send, data, address)

    datagrams.send = spoiled  # type: ignore[method-assign]


def write(path: Path, document: object) -> None:
    """All at once, because somebody waits for the file."""
    beside = path.with_suffix(".part")
    beside.write_text(json.dumps(document))
    beside.rename(path)


async def main(options: argparse.Namespace) -> None:
    ended = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, ended.set)
    crowd = []
    for number in range(options.first, options.first + options.count):
        name = f"crowd-{number}"
        config = SidecarConfig(
            id=name,
            agent=AgentConfig(address=await agent(name), capabilities=[CapabilityConfig(name="work")]),
            control=options.control,
            listen=ListenConfig(outbound="127.0.0.1:0", mesh="127.0.0.1:0", admin="127.0.0.1:0"),
            state_dir=options.folder / name,
            drain=DrainConfig(wait=0.0, grace=1.0),
        )
        crowd.append(Sidecar(config))
    for sidecar in crowd:
        await sidecar.start()
        if options.loss or options.delay:
            spoil_the_way(sidecar, options.loss, options.delay)
    write(Path(options.ready_file), {
        "pid": os.getpid(),
        "outbound": [sidecar.addresses["outbound"] for sidecar in crowd],
        "admin": [sidecar.addresses["admin"] for sidecar in crowd],
    })  # fmt: skip
    calls = Calls([sidecar.addresses["outbound"] for sidecar in crowd], options.calls or 1.0)
    calling = asyncio.create_task(calls.run()) if options.calls else None
    await ended.wait()
    if calling is not None:
        calling.cancel()
        await asyncio.gather(calling, return_exceptions=True)
    write(options.folder / f"calls-{options.first}.json", {"good": calls.good, "bad": calls.bad})
    await asyncio.gather(*(sidecar.stop() for sidecar in crowd))


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--count", type=int, required=True)
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--control", action="append", required=True)
    parser.add_argument("--calls", type=float, default=0.0)
    parser.add_argument("--loss", type=float, default=0.0)
    parser.add_argument("--delay", type=float, default=0.0)
    parser.add_argument("--folder", type=Path, required=True)
    parser.add_argument("--ready-file", required=True)
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(main(parser.parse_args()))
