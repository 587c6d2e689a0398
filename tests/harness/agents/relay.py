"""An agent that calls another one before it answers, as naive as agents are.

It passes on `--pass` headers of what it was sent and nothing else. Whatever goes wrong behind it, it answers 500.
Without `--next` it is the end of the chain and answers as `--answer` says. What it was sent is in its record, a
JSON object a line.
"""

import argparse
import http.client
import json
import os
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import urlsplit

ANSWERS = {
    "ok": (200, ()),
    "turned-down": (503, (("Retry-After", "0"),)),
    "retryable": (200, (("Reach-Outcome", "retryable_failure"),)),
    "error": (500, ()),
    "hang": (0, ()),
}


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    options: argparse.Namespace
    writing = threading.Lock()

    def answer(self, status, document, extra=()):
        body = json.dumps(document).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        for name, value in extra:
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(body)

    def do_GET(self):
        self.answer(200, {"agent": self.options.name})

    def do_POST(self):
        self.rfile.read(int(self.headers["Content-Length"]))
        seen = {"at": time.monotonic(), **{name.lower(): value for name, value in self.headers.items()}}
        with self.writing, open(self.options.record, "a") as record:
            record.write(json.dumps(seen) + "\n")
        if self.options.next:
            status, answer = self.call_next()
            self.answer(200 if status == 200 else 500, {"agent": self.options.name, "status": status, "behind": answer})
            return
        status, extra = ANSWERS[self.options.answer]
        if not status:
            time.sleep(30)
        self.answer(status or 200, {"agent": self.options.name}, extra)

    def call_next(self):
        where = urlsplit(self.options.next)
        connection = http.client.HTTPConnection(where.hostname, where.port, timeout=40)
        headers = {name: self.headers[name] for name in self.options.passed if self.headers[name] is not None}
        try:
            connection.request("POST", where.path, b'{"task": "next"}', {"Content-Type": "application/json", **headers})
            answer = connection.getresponse()
            return answer.status, json.loads(answer.read())
        finally:
            connection.close()

    def log_message(self, *arguments):
        pass


class Server(ThreadingHTTPServer):
    daemon_threads = True

    def handle_error(self, request, client_address):
        pass


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--name", default="relay")
    parser.add_argument("--port", type=int, default=0)
    parser.add_argument("--next", help="the URL that is called")
    parser.add_argument("--pass", dest="passed", action="append", default=[], metavar="HEADER")
    parser.add_argument("--answer", choices=list(ANSWERS), default="ok")
    parser.add_argument("--record", required=True, help="the file")
    parser.add_argument("--ready-file")
    Handler.options = options = parser.parse_args()
    server = Server(("127.0.0.1", options.port), Handler)
    port = server.server_address[1]
    with open(options.ready_file + ".new", "w") as file:
        json.dump({"pid": os.getpid(), "port": port, "url": f"http://127.0.0.1:{port}"}, file)
    os.replace(options.ready_file + ".new", options.ready_file)
    server.serve_forever()


main()
