"""The control nodes of the configuration, and the one that is talked to now.

Control nodes are equals: when one is gone the next in the list is taken, and everything that still waits for
the old one hears of it (`moved`). Requests to control have a pool of their own, without a limit, so a heartbeat
waits neither for a call nor for the long-poll. aiohttp is imported at the first use: it is not needed to serve.
"""

import asyncio
import random
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Protocol, TypeVar

import msgspec

from reach_core.messages import MeshInfo, Message, MessageError, TableAnswer, decode, encode

if TYPE_CHECKING:
    import aiohttp

M = TypeVar("M", bound=Message)
T = TypeVar("T")

TIMEOUT_S = 5.0
CONNECT_TIMEOUT_S = 3.0
POLL_MARGIN_S = 10.0
ERROR_BYTES = 64 * 1024
GOSSIP = "application/vnd.reach.gossip"
GOSSIP_BYTES = 1024 * 1024


class EventLog(Protocol):
    """What this package needs of the log."""

    def event(self, level: str, event: str, **fields: object) -> None: ...


class Unreachable(Exception):
    """No usable answer came: nobody listens, it took too long, or what came is not from a control node."""


class Refused(Exception):
    """Control understood and said no. `code` is that of its problem document, such as `register_again`."""

    def __init__(self, status: int, code: str, detail: str) -> None:
        super().__init__(detail)
        self.status = status
        self.code = code
        self.detail = detail


class Backoff:
    """Exponential with jitter: half to one and a half of 0.1 s, 0.2 s, 0.4 s … and at most about 5 s."""

    def __init__(self, first_s: float = 0.1, most_s: float = 5.0) -> None:
        self._first_s = first_s
        self._most_s = most_s
        self._times = 0

    def next_s(self, chance: float) -> float:
        wait_s = min(self._most_s, self._first_s * 2.0 ** min(self._times, 30))
        self._times += 1
        return wait_s * (0.5 + chance)

    def reset(self) -> None:
        self._times = 0


class _Problem(msgspec.Struct):
    type: str = ""
    title: str = ""
    detail: str = ""


class Controls:
    """`connected`: the last exchange brought an answer. `trouble`: a sentence about why not, or None."""

    def __init__(
        self,
        urls: Sequence[str],
        log: EventLog,
        *,
        chance: Callable[[], float] = random.random,
        api_token: str | None = None,
    ) -> None:
        self.urls = [url.rstrip("/") for url in urls]
        self.chance = chance
        self.connected = False
        self.trouble: str | None = None
        self.moved = asyncio.Event()
        self._said_lost = False
        self._headers = {"Reach-Api-Token": api_token} if api_token else {}
        self._log = log
        self._current = 0
        self._session: aiohttp.ClientSession | None = None

    @property
    def url(self) -> str | None:
        return self.urls[self._current] if self.urls else None

    def move_on(self, failed: str) -> bool:
        """Take the next node if `failed` is still the current one; whether all have been tried since the first."""
        if failed != self.url:
            return False
        self._current = (self._current + 1) % len(self.urls)
        if len(self.urls) > 1:
            moved, self.moved = self.moved, asyncio.Event()
            moved.set()
        return self._current == 0

    async def post(self, path: str, message: Message, answer: type[M], timeout_s: float = TIMEOUT_S) -> M:
        """Raises Unreachable or Refused."""
        return await self._ask("POST", path, encode(message), lambda body: decode(answer, body), answer.max_bytes,
                               timeout_s)

    async def table(self, since: int, epoch: str, wait_s: float) -> TableAnswer:
        """What changed after `since`, waiting at most `wait_s` for it. Raises Unreachable or Refused."""
        path = f"/v1/table?since={since}&epoch={epoch}&wait={wait_s:g}s"
        return await self._ask("GET", path, None, lambda body: decode(TableAnswer, body), TableAnswer.max_bytes,
                               wait_s + POLL_MARGIN_S, may_be_busy=True)

    async def info(self) -> tuple[str, MeshInfo]:
        """What holds mesh-wide, and the node that says so; `version` 0 from one that is too old to say. Raises
        Unreachable or Refused."""
        url = self.url or ""
        info = await self._ask("GET", "/v1/mesh", None, lambda body: decode(MeshInfo, body), MeshInfo.max_bytes,
                               TIMEOUT_S, absent=MeshInfo(version=0))
        return url, info

    async def gossip(self, data: bytes) -> bytes:
        """One step of a comparison of tables; empty from a node that is too old for it. Raises Unreachable or
        Refused."""
        return await self._ask("POST", "/v1/gossip", data, bytes, GOSSIP_BYTES, TIMEOUT_S, GOSSIP, absent=b"",
                               may_be_busy=True)

    async def close(self) -> None:
        if self._session is not None:
            session, self._session = self._session, None
            await session.close()

    async def _ask(self, method: str, path: str, data: bytes | None, read: Callable[[bytes], T], most_bytes: int,
                   timeout_s: float, content_type: str = "application/json", absent: T | None = None,
                   may_be_busy: bool = False) -> T:
        """`absent` is the answer where there is nothing at that path; `may_be_busy`: a 503 is no loss of the node."""
        if self._session is None:
            await asyncio.to_thread(_import_client)  # a tenth of a second, in which calls go on
        import aiohttp

        if self._session is None:
            connector = aiohttp.TCPConnector(limit=0, keepalive_timeout=20)
            self._session = aiohttp.ClientSession(connector=connector)
        url = self.url
        assert url is not None, "no control node is configured"
        timeout = aiohttp.ClientTimeout(total=timeout_s, sock_connect=CONNECT_TIMEOUT_S)
        headers = {**self._headers, "Content-Type": content_type} if data is not None else self._headers
        try:
            async with self._session.request(
                method, url + path, data=data, headers=headers, timeout=timeout, allow_redirects=False
            ) as response:
                status = response.status
                body = await _read(response.content, most_bytes if status == 200 else ERROR_BYTES)
            if status == 200:
                answer = read(body)
        except MessageError as error:
            raise self._lost(url, f"what answers there is not a control node of this mesh ({error})") from None
        except (aiohttp.ClientError, TimeoutError, OSError, ValueError) as error:
            raise self._lost(url, _reason(error)) from error
        if status == 200:
            self._found(url)
            return answer
        if status == 404 and absent is not None:
            return absent
        refusal = _refusal(status, body) if 400 <= status < 500 or (status == 503 and may_be_busy) else None
        if refusal is None:
            raise self._lost(url, f"it answered with status {status}")
        self._found(url)
        raise refusal

    def _lost(self, url: str, reason: str) -> Unreachable:
        others = "" if len(self.urls) < 2 else " The others in the list are tried next."
        self.trouble = (
            f"The control node {url} cannot be reached: {reason}. Start it with `reach control`, or correct "
            f"`control:` in the configuration.{others}"
        )
        if self.connected or not self._said_lost:
            self._said_lost = True
            self._log.event("warn", "control_lost", detail=self.trouble)
        self.connected = False
        return Unreachable(self.trouble)

    def _found(self, url: str) -> None:
        if not self.connected:
            self._log.event("info", "control_found", detail=f"Talking to the control node {url}.")
        self.connected, self.trouble, self._said_lost = True, None, False


async def _read(content: "aiohttp.StreamReader", bound: int) -> bytes:
    parts, size = [], 0
    async for part in content.iter_any():
        size += len(part)
        if size > bound:
            raise ValueError(f"it answered with more than {bound} bytes")
        parts.append(part)
    return b"".join(parts)


def _refusal(status: int, body: bytes) -> Refused | None:
    """None where it does not come from a control node: another server has its address."""
    try:
        problem = msgspec.json.decode(body, type=_Problem)
    except (msgspec.MsgspecError, ValueError):
        return None
    code = problem.type.removeprefix("urn:reach:")
    if code == problem.type or code in ("not_found", "method_not_allowed"):
        return None
    return Refused(status, code, problem.detail or problem.title)


def _reason(error: BaseException) -> str:
    if isinstance(error, TimeoutError):
        return "it did not answer in time"
    cause = getattr(error, "os_error", None) or error
    if isinstance(cause, ConnectionRefusedError):
        return "the connection was refused"
    return str(cause) or type(cause).__name__


def _import_client() -> None:
    import aiohttp  # noqa: F401
