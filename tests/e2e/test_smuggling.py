"""Requests that two parsers may read differently, sent through two sidecars to three back ends of different making.

Never may a back end see two requests where one was sent, nor a request that was only the body of another; and what one
connection left behind must not become part of the next one's.
"""

import asyncio
import json
import shutil
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import NamedTuple

import pytest
from harness.mesh import Mesh, Sidecar
from harness.ports import lasting_port
from harness.sidecars import until

HIDDEN = (b"POST /hidden HTTP/1.1\r\nHost: x\r\nReach-Target: %b\r\nReach-Agent: %b\r\nReach-Caller: evil\r\n"
          b"Content-Length: 0\r\n\r\n")
CHUNKED_HIDDEN = b"0\r\n\r\n"


class Case(NamedTuple):
    """`head` are the fields after `Host`, `body` what follows; `%HIDDEN%` in it is a request that must stay unseen.
    `passes`: a good request all the same, of which the back end sees exactly one. `late`: only its body is wrong, so
    the back end may have seen its head by then.
    """

    name: str
    head: bytes
    body: bytes = b"%HIDDEN%"
    passes: bool = False
    late: bool = False
    line: bytes = b"POST %PATH% HTTP/1.1"


TE = b"Transfer-Encoding: chunked\r\n"
CASES = [
    # both framings, in every order and spelling
    Case("CL.TE", b"Content-Length: %LEN%\r\n" + TE, b"0\r\n\r\n%HIDDEN%"),
    Case("TE.CL", TE + b"Content-Length: 4\r\n", b"5c\r\n%HIDDEN%\r\n0\r\n\r\n"),
    Case("CL 0 and TE", b"Content-Length: 0\r\n" + TE, b"0\r\n\r\n%HIDDEN%"),
    *(Case(f"CL and TE {spelling!r}", b"Content-Length: %LEN%\r\n" + spelling + b"\r\n", b"0\r\n\r\n%HIDDEN%") for spelling in (
        b"Transfer-Encoding: xchunked", b"Transfer-Encoding : chunked", b"Transfer-Encoding:\tchunked",
        b"Transfer-Encoding: chunked, identity", b"Transfer-Encoding: identity, chunked", b"Transfer-Encoding: \x0bchunked",
        b"Transfer-Encoding: chunked\x00", b"Transfer-Encoding: 'chunked'", b"TRANSFER-ENCODING: CHUNKED",
        b"Transfer-Encoding:\r\n chunked", b"X: y\r\n Transfer-Encoding: chunked", b"X: y\nTransfer-Encoding: chunked",
        b"Transfer-Encoding: x\r\nTransfer-Encoding: chunked", b"Transfer-Encoding: chunked\r\nTransfer-Encoding: x",
        b"Transfer-Encoding: chunked;q=1", b"Transfer\xc5\xbfEncoding: chunked", b"X\r: y\r\nTransfer-Encoding: chunked",
    )),
    # lengths
    *(Case(f"length {value!r}", b"Content-Length: " + value + b"\r\n") for value in (
        b"+5", b"-5", b"0x5", b"5 5", b"5, 5", b"5,5", b" 5\x0b", b"5;", b"5_0", b"\xc2\xa05", b"1e1", b"", b"5\x00",
        b"99999999999999999999", b"\xd9\xa5",
    )),
    Case("two lengths that differ", b"Content-Length: 0\r\nContent-Length: %LEN%\r\n"),
    Case("two lengths that agree", b"Content-Length: %LEN%\r\nContent-Length: %LEN%\r\n"),
    Case("length with a space before the colon", b"Content-Length : %LEN%\r\nX: y\r\n"),
    Case("length in a folded line", b"X: y\r\n Content-Length: %LEN%\r\n"),
    Case("length after a bare CR", b"X: y\rContent-Length: %LEN%\r\n"),
    Case("length after a bare LF", b"X: y\nContent-Length: %LEN%\r\n"),
    # chunks
    *(Case(f"chunk {first!r}", TE, first + b"%HIDDEN%", late=True) for first in (
        b"0x0\r\n\r\n", b"-0\r\n\r\n", b"+0\r\n\r\n", b" 0\r\n\r\n", b"0 \r\n\r\n", b"0\n\n", b"0\r\n\n", b"g\r\n\r\n", b"\r\n0\r\n\r\n",
        b"5\r\nabcde0\r\n\r\n", b"5\r\nabcdeXX0\r\n\r\n", b"5\nabcde\r\n0\r\n\r\n", b"1_0\r\n", b"FFFFFFFFFFFFFFFF0\r\n",
        b"2\r\nab\n0\r\n\r\n", b"0;x=\n\r\n\r\n", b"0\r\nX:\x00y\r\n\r\n", b"0\r\n X: y\r\n\r\n",
    )),
    # what is no chunked request at all
    Case("TE in HTTP/1.0", TE, b"0\r\n\r\n%HIDDEN%", line=b"POST %PATH% HTTP/1.0"),
    Case("HTTP/0.9", b"", line=b"POST %PATH%"),
    Case("HTTP/2.0", b"Content-Length: %LEN%\r\n", line=b"POST %PATH% HTTP/2.0"),
    Case("HTTP/1.1 in two spellings", b"Content-Length: %LEN%\r\n", line=b"POST %PATH% HTTP/1.1 HTTP/1.1"),
    Case("tab in the line", b"Content-Length: %LEN%\r\n", line=b"POST\t%PATH%\tHTTP/1.1"),
    Case("CR in the line", b"Content-Length: %LEN%\r\n", line=b"POST %PATH%\rHTTP/1.1"),
    Case("two hosts", b"Host: other\r\nContent-Length: %LEN%\r\n"),
    Case("NUL in a value", b"X: a\x00b\r\nContent-Length: %LEN%\r\n"),
    Case("no name", b": y\r\nContent-Length: %LEN%\r\n"),
    # good requests whose bodies look like requests
    Case("a request as body", b"Content-Length: %LEN%\r\n", passes=True),
    Case("a request in a chunk", TE, b"%SIZE%\r\n%HIDDEN%\r\n0\r\n\r\n", passes=True),
    Case("a request in a chunk with an extension", TE, b"%SIZE%;a=b\r\n%HIDDEN%\r\n0\r\n\r\n", passes=True),
    Case("a request in a trailer", TE, b"1\r\nx\r\n0\r\nX-Sum: 1\r\n\r\n", passes=True),
    Case("a length named by Connection", b"Connection: Content-Length\r\nContent-Length: %LEN%\r\n", passes=True),
    Case("chunks named by Connection", b"Connection: Transfer-Encoding\r\n" + TE, b"%SIZE%\r\n%HIDDEN%\r\n0\r\n\r\n", passes=True),
    Case("an upgrade with a body", b"Upgrade: h2c\r\nConnection: Upgrade\r\nContent-Length: %LEN%\r\n", passes=True),
    Case("an expectation with a body", b"Expect: 100-continue\r\nContent-Length: %LEN%\r\n", passes=True),
    Case("DELETE with a body", b"Content-Length: %LEN%\r\n", passes=True, line=b"DELETE %PATH% HTTP/1.1"),
    Case("GET with a body", b"Content-Length: %LEN%\r\n", passes=True, line=b"GET %PATH% HTTP/1.1"),
]


class BackEnd(NamedTuple):
    """One kind of server behind its sidecar, and where it notes what it saw."""

    kind: str
    sidecar: Sidecar
    note: Path

    def has_seen(self, target: str) -> bool:
        return target in self.seen()

    def seen(self) -> list[str]:
        lines = self.note.read_text().splitlines() if self.note.exists() else []
        return [json.loads(line)["target"] for line in lines]


NGINX = """
worker_processes 1; daemon off; error_log %(folder)s/error.log; pid %(folder)s/pid;
events {}
http {
  log_format seen escape=json '{"target":"$request_uri","length":$request_length}';
  access_log %(note)s seen;
  client_body_temp_path %(folder)s/body; proxy_temp_path %(folder)s/proxy; fastcgi_temp_path %(folder)s/f;
  uwsgi_temp_path %(folder)s/u; scgi_temp_path %(folder)s/s;
  server { listen 127.0.0.1:%(port)d; location / { return 200 "nginx $request_uri"; } }
}
"""


def back_end(mesh: Mesh, kind: str, control: object) -> BackEnd:
    note = mesh.folder / f"{kind}.seen"
    if kind == "nginx":
        folder, port = mesh.folder / "nginx", lasting_port()
        folder.mkdir()
        (folder / "nginx.conf").write_text(NGINX % {"folder": folder, "note": note, "port": port})
        nginx = shutil.which("nginx") or "/usr/sbin/nginx"
        mesh.start("nginx", nginx, "-e", folder / "early.log", "-c", folder / "nginx.conf", ready=False)
        url = f"http://127.0.0.1:{port}"
    else:
        script = "recorder.py" if kind == "python" else "recorder.mjs"
        url = mesh.agent(f"{kind}-agent", script, "--seen", note).ready["url"]
    sidecar = mesh.sidecar(kind, control, {"address": url, "capabilities": [{"name": kind}]})  # type: ignore[arg-type]
    return BackEnd(kind, sidecar, note)


@pytest.fixture(scope="module")
def back_ends(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Sidecar, list[BackEnd]]]:
    mesh = Mesh(tmp_path_factory.mktemp("smuggling"))
    try:
        control = mesh.control()
        found = [back_end(mesh, kind, control) for kind in ("python", "node", "nginx")]
        caller = mesh.sidecar("caller", control)
        for one in found:
            mesh.wait_usable(caller, one.kind)
        yield caller, found
    finally:
        mesh.stop()


def made(case: Case, kind: str, number: str) -> bytes:
    """The bytes of the case for one back end; `number` makes its path unique."""
    hidden = HIDDEN % (kind.encode(), kind.encode())
    body = case.body.replace(b"%SIZE%", b"%x" % len(hidden)).replace(b"%HIDDEN%", hidden)
    line = case.line.replace(b"%PATH%", f"/to/{kind}/{number}".encode())
    head = case.head.replace(b"%LEN%", b"%d" % len(body))
    return line + b"\r\nHost: localhost\r\n" + head + b"\r\n" + body


async def send(sidecar: Sidecar, data: bytes) -> bytes:
    """All that comes back on one connection until it is closed or quiet."""
    reader, writer = await asyncio.open_connection("127.0.0.1", sidecar.port)
    answer = b""
    try:
        writer.write(data)
        async with asyncio.timeout(1.0):
            while part := await reader.read(65_536):
                answer += part
                if answer.startswith(b"HTTP/1.1 200") and b"\r\n\r\n" in answer:
                    break
    except (TimeoutError, ConnectionError):
        pass
    finally:
        writer.close()
    return answer


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
async def test_nobody_sees_two_requests_where_one_was_sent(back_ends: tuple[Sidecar, list[BackEnd]], case: Case) -> None:
    caller, found = back_ends
    for one in found:
        number = f"case-{CASES.index(case)}"
        answer = await send(caller, made(case, one.kind, number))
        after = await send(caller, f"GET /to/{one.kind}/after-{number} HTTP/1.1\r\nHost: localhost\r\n\r\n".encode())
        assert after.endswith(f"{one.kind} /after-{number}".encode()), (one.kind, after)
        # nginx notes a request after it has answered, in the order of their ends
        await until(partial(one.has_seen, f"/after-{number}"), f"{one.kind} saw the call after it")
        seen = one.seen()
        assert "/hidden" not in seen, (one.kind, answer)
        assert seen.count(f"/after-{number}") == 1
        if case.passes:
            assert seen.count(f"/{number}") == 1, (one.kind, answer)
            assert answer.startswith((b"HTTP/1.1 200", b"HTTP/1.1 100")), (one.kind, answer)
        else:
            assert seen.count(f"/{number}") <= case.late, (one.kind, answer)
            assert answer[9:12] in (b"400", b"411", b"501", b"505", b""), (one.kind, answer[:200])
