"""An agent that does something which must not be done twice, and keeps a ledger of it.

The work is named by the header X-Call. Its line is on the disk before the work begins:
    <call> <monotonic ns> <pid> <Idempotency-Key> <Reach-Attempt>
Some calls are turned down before anything is noted (503 with Retry-After, or the outcome retryable_failure), some
fail after they were (the outcome failure, or 500). An answer holds a number that no other run has.
"""

import argparse
import json
import os
import random
import socket
import threading
import time
import uuid
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    options: argparse.Namespace
    ledger: int
    chance = random.Random()

    def answer(self, status, document, *extra):
        body = json.dumps(document).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        for name, value in extra:
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(body)

    def do_GET(self):
        self.answer(200, {"agent": self.options.name, "pid": os.getpid()})

    def note(self, call):
        key, attempt = self.headers.get("Idempotency-Key", "-"), self.headers.get("Reach-Attempt", "-")
        line = f"{call} {time.monotonic_ns()} {os.getpid()} {key} {attempt}\n"
        os.write(self.ledger, line.encode())
        os.fsync(self.ledger)

    def do_POST(self):
        left = int(self.headers["Content-Length"])
        while left > 0:
            block = self.rfile.read(min(left, 1 << 16))
            if not block:
                self.close_connection = True  # cut off: nothing is done for half a request
                return
            left -= len(block)
        options, drawn = self.options, self.chance.random()
        call = self.headers["X-Call"]
        if drawn < options.turned_down:
            if self.chance.random() < 0.5:
                self.answer(503, {"turned_down": call}, ("Retry-After", "0"))
            else:
                self.answer(200, {"turned_down": call}, ("Reach-Outcome", "retryable_failure"))
            return
        self.note(call)
        if self.chance.random() < options.twice:
            self.note(call)
        time.sleep(self.chance.uniform(options.shortest, options.longest))
        document = {"agent": options.name, "call": call, "run": uuid.uuid4().hex}
        if drawn > 1 - options.failing / 2:
            self.answer(500, document)
        elif drawn > 1 - options.failing:
            self.answer(200, document, ("Reach-Outcome", "failure"))
        else:
            self.answer(200, document)

    def log_message(self, *arguments):
        pass


class Server(ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 256

    def handle_error(self, request, client_address):
        pass  # callers that go away are part of the test

    def server_bind(self):
        self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        super().server_bind()


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--name", default="ledger")
    parser.add_argument("--port", type=int, default=0)
    parser.add_argument("--ledger", required=True, help="the file")
    parser.add_argument("--shortest", type=float, default=0.005, help="seconds of work")
    parser.add_argument("--longest", type=float, default=0.3)
    parser.add_argument("--turned-down", type=float, default=0.0, help="share that is not done")
    parser.add_argument("--failing", type=float, default=0.0, help="share that fails after it was noted")
    parser.add_argument("--twice", type=float, default=0.0, help="share that is done twice: what a test has to find")
    parser.add_argument("--seed", type=int)
    parser.add_argument("--ready-file")
    Handler.options = options = parser.parse_args()
    Handler.chance.seed(options.seed)
    Handler.ledger = os.open(options.ledger, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
    server = Server(("127.0.0.1", options.port), Handler)
    port = server.server_address[1]
    with open(options.ready_file + ".new", "w") as file:
        json.dump({"pid": os.getpid(), "port": port, "url": f"http://127.0.0.1:{port}"}, file)
    os.replace(options.ready_file + ".new", options.ready_file)
    thread = threading.Thread(target=server.serve_forever, args=(0.05,))
    thread.start()
    thread.join()


main()
