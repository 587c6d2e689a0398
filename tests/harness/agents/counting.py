"""A plain agent, standard library only, that counts: POST /hang is never answered, any other POST is; GET /count."""

import argparse
import json
import os
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

counting = threading.Lock()
runs = {}


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def answer(self, document):
        body = json.dumps(document).encode()
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def do_POST(self):
        self.rfile.read(int(self.headers.get("content-length", 0)))
        key = self.headers.get("idempotency-key", "")
        with counting:
            runs[key] = runs.get(key, 0) + 1
        if self.path == "/hang":
            threading.Event().wait(600)
        self.answer({"key": key, "run": runs[key]})

    def do_GET(self):
        with counting:
            self.answer({"runs": sum(runs.values()), "by_key": runs})

    def log_message(self, format, *args):
        pass


class Server(ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 256


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--name", default="counting")
    parser.add_argument("--ready-file")
    options = parser.parse_args()
    server = Server(("127.0.0.1", 0), Handler)
    port = server.socket.getsockname()[1]
    with open(options.ready_file + ".new", "w") as file:
        json.dump({"pid": os.getpid(), "port": port, "url": f"http://127.0.0.1:{port}"}, file)
    os.replace(options.ready_file + ".new", options.ready_file)
    server.serve_forever()


main()
