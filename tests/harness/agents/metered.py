"""An agent that measures how many calls it has at once: those whose caller still waits, when another one begins.

A call whose connection was closed counts no more, even where a stopped agent could not see that at the time.
GET /meter tells the highest so far and how many calls there were.
"""

import argparse
import json
import os
import select
import threading
import time
import uuid
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer


class Meter:
    def __init__(self):
        self.lock = threading.Lock()
        self.waiting = set()
        self.peak = self.calls = 0

    def begin(self, connection):
        """False where the caller has gone already."""
        with self.lock:
            self.waiting = {one for one in self.waiting if not gone(one)}
            if gone(connection):
                return False
            self.waiting.add(connection)
            self.calls += 1
            self.peak = max(self.peak, len(self.waiting))
            return True

    def end(self, connection):
        with self.lock:
            self.waiting.discard(connection)


def gone(connection):
    if connection.fileno() < 0:
        return True
    poll = select.poll()
    poll.register(connection, select.POLLRDHUP)
    return bool(poll.poll(0))


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    options: argparse.Namespace
    meter = Meter()

    def answer(self, document):
        body = json.dumps(document).encode()
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def do_GET(self):
        self.answer({"peak": self.meter.peak, "calls": self.meter.calls})

    def do_POST(self):
        self.rfile.read(int(self.headers["Content-Length"]))
        if not self.meter.begin(self.connection):
            self.close_connection = True
            return
        try:
            time.sleep(self.options.work)
        finally:
            self.meter.end(self.connection)  # before the answer: with it the next call may come
        self.answer({"agent": self.options.name, "call": self.headers["X-Call"], "run": uuid.uuid4().hex})

    def log_message(self, *arguments):
        pass


class Server(ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 512

    def handle_error(self, request, client_address):
        pass


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--name", default="metered")
    parser.add_argument("--work", type=float, default=0.02, help="seconds of a call")
    parser.add_argument("--ready-file")
    Handler.options = options = parser.parse_args()
    server = Server(("127.0.0.1", 0), Handler)
    port = server.server_address[1]
    with open(options.ready_file + ".new", "w") as file:
        json.dump({"pid": os.getpid(), "port": port, "url": f"http://127.0.0.1:{port}"}, file)
    os.replace(options.ready_file + ".new", options.ready_file)
    server.serve_forever()


main()
