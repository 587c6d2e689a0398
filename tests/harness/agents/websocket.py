"""A WebSocket agent: each message comes back; `close CODE` closes with that code, `headers` tells them."""

import argparse
import asyncio
import json
import os

from websockets.asyncio.server import serve


async def talk(connection):
    async for message in connection:
        if isinstance(message, str) and message.startswith("close "):
            await connection.close(int(message.split()[1]), "as asked")
        elif isinstance(message, str) and message == "headers":
            await connection.send(json.dumps(list(connection.request.headers.raw_items())))
        else:
            await connection.send(message)


def tell(path, port):
    with open(path + ".new", "w") as file:
        json.dump({"pid": os.getpid(), "port": port, "url": f"http://127.0.0.1:{port}"}, file)
    os.replace(path + ".new", path)


async def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--name", default="websocket")
    parser.add_argument("--ready-file")
    options = parser.parse_args()
    async with serve(talk, "127.0.0.1", 0, max_size=None) as server:
        port = server.sockets[0].getsockname()[1]
        tell(options.ready_file, port)
        await asyncio.Future()


asyncio.run(main())
