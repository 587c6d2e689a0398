"""Questions of a control node to sidecars, at their mesh listeners, and to other control nodes: one HTTP client."""

from collections.abc import Callable
from typing import TYPE_CHECKING, TypeVar

from reach_core.messages import (
    Hello,
    LookAnswer,
    LookRequest,
    MeshInfo,
    Message,
    MessageError,
    NodeAnswer,
    NodePush,
    ProbeAnswer,
    decode,
    encode,
)

if TYPE_CHECKING:
    import aiohttp

M = TypeVar("M", bound=Message)

GOSSIP = "application/vnd.reach.gossip"
GOSSIP_BYTES = 1024 * 1024
HELLO_S = 1.0
LOOK_S = 1.5
TELL_S = 2.0
PUSH_S = 5.0
CLOSE = {"Connection": "close"}
"""To sidecars: they are many, and one that was restarted must not be met over the connection to its predecessor."""


class Unanswered(Exception):
    """No usable answer; the text says why."""


class Client:
    """`token` is sent to other control nodes (REACH_API_TOKEN). aiohttp's client is imported at its first use."""

    def __init__(self, token: str | None = None) -> None:
        self._headers = {"Reach-Api-Token": token} if token else {}
        self._session: aiohttp.ClientSession | None = None

    async def hello(self, address: str) -> Hello:
        """Who is at that mesh listener. Raises Unanswered."""
        return await self._ask("GET", f"http://{address}/v1/hello", b"", Hello, HELLO_S, CLOSE)

    async def look(self, address: str, wanted: LookRequest) -> LookAnswer:
        """What the sidecar at `address` sees. Raises Unanswered."""
        return await self._ask("POST", f"http://{address}/v1/look", encode(wanted), LookAnswer, LOOK_S, CLOSE)

    async def probe(self, address: str, timeout_s: float) -> ProbeAnswer:
        """Have the sidecar at `address` check its agent's health now. Raises Unanswered."""
        return await self._ask("POST", f"http://{address}/v1/probe", b"", ProbeAnswer, timeout_s, CLOSE)

    async def push(self, url: str, push: NodePush) -> NodeAnswer:
        """Tell another control node. Raises Unanswered."""
        return await self._ask("POST", f"{url}/v1/nodes", encode(push), NodeAnswer, PUSH_S, self._headers)

    async def tell(self, address: str, data: bytes) -> bytes:
        """News for the sidecar at `address`, as a step of a comparison. Raises Unanswered."""
        headers = {**CLOSE, "Content-Type": GOSSIP}
        return await self._send("POST", f"http://{address}/v1/gossip", data, GOSSIP_BYTES, TELL_S, headers)

    async def compare(self, url: str, data: bytes) -> bytes:
        """One step of a comparison with another control node. Raises Unanswered."""
        headers = {**self._headers, "Content-Type": GOSSIP}
        return await self._send("POST", f"{url}/v1/gossip", data, GOSSIP_BYTES, PUSH_S, headers)

    async def info(self, url: str) -> MeshInfo:
        """What another control node says of the mesh. Raises Unanswered."""
        return await self._ask("GET", f"{url}/v1/mesh", b"", MeshInfo, PUSH_S, self._headers)

    async def close(self) -> None:
        if self._session is not None:
            session, self._session = self._session, None
            await session.close()

    async def _ask(self, method: str, url: str, data: bytes, kind: type[M], timeout_s: float,
                   headers: dict[str, str] | None = None) -> M:
        headers = {**(headers or {}), "Content-Type": "application/json"}
        body = await self._send(method, url, data, kind.max_bytes, timeout_s, headers)
        try:
            return decode(kind, body)
        except MessageError as error:
            raise Unanswered(f"{url} answered with something else ({error})") from None

    async def _send(self, method: str, url: str, data: bytes, most_bytes: int, timeout_s: float,
                    headers: dict[str, str]) -> bytes:
        import aiohttp

        if self._session is None:
            connector = aiohttp.TCPConnector(limit=0, keepalive_timeout=10)
            self._session = aiohttp.ClientSession(connector=connector)
        try:
            async with self._session.request(
                method, url, data=data or None, headers=headers, timeout=aiohttp.ClientTimeout(total=timeout_s),
                allow_redirects=False,
            ) as answer:
                body = await _read(answer.content.iter_any, most_bytes)
                status = answer.status
        except TimeoutError:
            raise Unanswered(f"{url} did not answer within {timeout_s:g} s") from None
        except (aiohttp.ClientError, OSError, ValueError) as error:
            raise Unanswered(f"{url}: {error or type(error).__name__}") from None
        if status != 200:
            raise Unanswered(f"{url} answered with status {status}: {body[:200].decode('utf-8', 'replace')}")
        return body


async def _read(parts: "Callable[[], aiohttp.streams.AsyncStreamIterator[bytes]]", most_bytes: int) -> bytes:
    read, size = [], 0
    async for part in parts():
        size += len(part)
        if size > most_bytes:
            raise ValueError(f"it answered with more than {most_bytes} bytes")
        read.append(part)
    return b"".join(read)
