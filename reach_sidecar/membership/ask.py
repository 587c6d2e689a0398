"""One question to the sidecar at some address, on a connection of its own: those who compare tables are drawn anew each
time, so a connection kept open would hardly be used again.
"""

import asyncio

from reach_core.address import split_address
from reach_sidecar.http1.body import Body, BodyError, BodyTooLarge
from reach_sidecar.http1.client import ExchangeError
from reach_sidecar.http1.limits import Limits
from reach_sidecar.http1.message import field
from reach_sidecar.http1.pool import Pool
from reach_sidecar.http1.wire import request_head

JSON = "application/json"


class Unanswered(Exception):
    """No usable answer; the text says why."""


async def ask(address: str, method: str, path: str, body: bytes = b"", *, content_type: str = JSON,
              timeout_s: float, most_bytes: int) -> bytes:
    """The body of a 200 from `address` (`host:port`), at most `most_bytes`. Raises Unanswered."""
    try:
        host, port = split_address(address)
    except ValueError as error:
        raise Unanswered(f"{address!r} is no address: {error}") from None
    pool = Pool(host, port, Limits())
    loop = asyncio.get_running_loop()
    headers = [field("Host", address), field("Content-Type", content_type), field("Content-Length", str(len(body)))]
    head = request_head(method.encode(), path.encode(), headers if body or method != "GET" else headers[:1])
    try:
        async with asyncio.timeout(timeout_s):
            connection = await pool.connect(timeout_s)
            response = await connection.exchange(method.encode(), head, body, loop.time() + timeout_s)
            data = response.body
            if isinstance(data, Body):
                data = await data.collect(most_bytes)
    except TimeoutError:
        raise Unanswered(f"{address} did not answer within {timeout_s:g} s") from None
    except (ExchangeError, BodyError) as error:
        raise Unanswered(str(error)) from None
    except BodyTooLarge:
        raise Unanswered(f"{address} answered with more than {most_bytes} bytes") from None
    finally:
        pool.close()
    if response.status != 200:
        raise Unanswered(f"{address} answered with status {response.status}")
    if len(data) > most_bytes:
        raise Unanswered(f"{address} answered with more than {most_bytes} bytes")
    return data
