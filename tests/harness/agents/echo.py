"""A plain agent, standard library only: what a caller sent comes back as JSON; some paths misbehave.

/process (and any other)  echo: method, path, headers in order, size and hash of the body
/sse?events=N             server-sent events; event n+1 is produced only after POST /ack
/upload                   counts the body        /download?bytes=N   that many zeros
/slow?s=0.5               echo, later            /hang               no answer at all
/cut                      ends in the middle of its body          /status?code=500   that status
/chunked                  echo with chunked encoding and a trailer
/watch                    no answer; notices when the caller closes      /gone   how many did
"""

import argparse
import contextlib
import hashlib
import json
import os
import socket
import socketserver
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import parse_qs, urlsplit

ZEROS = memoryview(bytes(1 << 20))
BLOCK = 1 << 18


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    name = "echo"
    acknowledged = threading.Semaphore(0)
    gone = 0

    def blocks(self):
        """The body in pieces, by length or chunked."""
        if "chunked" in self.headers.get("transfer-encoding", "").lower():
            while size := int(self.rfile.readline().split(b";")[0], 16):
                yield self.rfile.read(size)
                self.rfile.readline()
            while self.rfile.readline() not in (b"\r\n", b""):
                pass
            return
        left = int(self.headers.get("content-length", 0))
        while left > 0:
            block = self.rfile.read1(min(left, BLOCK))
            if not block:
                raise ConnectionError("the body was cut off")
            left -= len(block)
            yield block

    def answer(self, status, document, kind="application/json", extra=()):
        body = json.dumps(document).encode()
        self.send_response(status)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(body)))
        for name, value in extra:
            self.send_header(name, value)
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    def echo(self):
        digest, size, text = hashlib.sha256(), 0, b""
        for block in self.blocks():
            digest.update(block)
            size += len(block)
            text = text + block if size <= 4096 else text
        return {
            "agent": self.name,
            "pid": os.getpid(),
            "method": self.command,
            "path": self.path,
            "version": self.request_version,
            "headers": self.headers.items(),
            "body_bytes": size,
            "body_sha256": digest.hexdigest(),
            "body": text.decode("utf-8", "replace") if size <= 4096 else None,
        }

    def chunk(self, data):
        self.wfile.write(b"%x\r\n%s\r\n" % (len(data), data))

    def handle_any(self):
        url = urlsplit(self.path)
        query = {name: values[0] for name, values in parse_qs(url.query).items()}
        route = getattr(self, "path_" + url.path.strip("/").replace("/", "_"), None)
        if route:
            route(query)
        else:
            self.answer(200, self.echo(), extra=[("X-Seen", "1"), ("X-Seen", "2")])

    do_GET = do_POST = do_PUT = do_PATCH = do_DELETE = do_HEAD = do_OPTIONS = handle_any

    def path_sse(self, query):
        self.send_response(200)
        self.send_header("Content-Type", "text/event-stream")
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()
        for number in range(int(query.get("events", 2))):
            if number and not Handler.acknowledged.acquire(timeout=20):
                self.close_connection = True
                return
            self.chunk(f"id: {number}\ndata: {time.time()}\n\n".encode())
        self.wfile.write(b"0\r\n\r\n")

    def path_ack(self, query):
        for _ in self.blocks():
            pass
        Handler.acknowledged.release()
        self.answer(200, {})

    def path_upload(self, query):
        size = 0
        for block in self.blocks():
            size += len(block)
        self.answer(200, {"bytes": size})

    def path_download(self, query):
        left = int(query["bytes"])
        self.send_response(200)
        self.send_header("Content-Type", "application/octet-stream")
        self.send_header("Content-Length", str(left))
        self.end_headers()
        while left > 0:
            self.connection.sendall(ZEROS[:left])
            left -= min(left, len(ZEROS))

    def path_slow(self, query):
        document = self.echo()
        time.sleep(float(query.get("s", 0.5)))
        self.answer(200, document)

    def path_hang(self, query):
        threading.Event().wait(600)

    def path_watch(self, query):
        for _ in self.blocks():
            pass
        with contextlib.suppress(ConnectionError):
            self.connection.recv(1)
        Handler.gone += 1
        self.close_connection = True

    def path_gone(self, query):
        self.answer(200, {"gone": Handler.gone})

    def path_cut(self, query):
        for _ in self.blocks():
            pass
        self.send_response(200)
        self.send_header("Content-Length", "1000")
        self.end_headers()
        self.wfile.write(b"only this")
        self.wfile.flush()
        self.connection.shutdown(socket.SHUT_RDWR)
        self.close_connection = True

    def path_status(self, query):
        self.answer(int(query["code"]), self.echo())

    def path_chunked(self, query):
        document = json.dumps(self.echo()).encode()
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Transfer-Encoding", "chunked")
        self.send_header("Trailer", "X-Sum")
        self.end_headers()
        for start in range(0, len(document), 64):
            self.chunk(document[start : start + 64])
        self.wfile.write(b"0\r\nX-Sum: %d\r\n\r\n" % len(document))

    def log_message(self, format, *args):
        pass


class Server(ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 256

    def server_bind(self):
        socketserver.TCPServer.server_bind(self)  # without the look-up of the host's name


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--name", default="echo")
    parser.add_argument("--host", default="127.0.0.1")
    parser.add_argument("--port", type=int, default=0)
    parser.add_argument("--ready-file")
    options = parser.parse_args()
    Handler.name = options.name
    if ":" in options.host:
        Server.address_family = socket.AF_INET6
    server = Server((options.host, options.port), Handler)
    host = f"[{options.host}]" if ":" in options.host else options.host
    port = server.socket.getsockname()[1]
    if options.ready_file:
        with open(options.ready_file + ".new", "w") as file:
            json.dump({"pid": os.getpid(), "port": port, "url": f"http://{host}:{port}"}, file)
        os.replace(options.ready_file + ".new", options.ready_file)
    server.serve_forever()


main()
