"""An agent on Python's own http.server that writes each request it sees into a file: `{"target", "length"}` a line."""

import argparse
import json
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path


class Recorder(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def handle_one(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        if self.headers.get("Transfer-Encoding"):
            while size := int(self.rfile.readline().split(b";")[0], 16):
                body += self.rfile.read(size)
                self.rfile.readline()
            while self.rfile.readline() not in (b"\r\n", b""):
                pass
        with options.seen.open("a") as file:
            file.write(json.dumps({"target": self.path, "length": len(body)}) + "\n")
        answer = f"python {self.path}".encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(answer)))
        self.end_headers()
        self.wfile.write(answer)

    do_GET = do_POST = do_PUT = do_DELETE = do_OPTIONS = do_HEAD = handle_one

    def log_message(self, format: str, *args: object) -> None:
        """Quiet."""


parser = argparse.ArgumentParser()
parser.add_argument("--seen", type=Path, required=True)
parser.add_argument("--ready-file", type=Path, required=True)
options, _ = parser.parse_known_args()
server = ThreadingHTTPServer(("127.0.0.1", 0), Recorder)
options.ready_file.write_text(json.dumps({"url": f"http://127.0.0.1:{server.server_port}"}))
server.serve_forever()
