"""A plain agent: an HTTP server that listens on $PORT. It knows nothing of the mesh.

    reach run --capability greet -- python3 examples/greeter.py
"""

import json
import os
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer


class Agent(BaseHTTPRequestHandler):
    def do_POST(self) -> None:
        job = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        body = json.dumps({"greeting": f"Hello, {job['task']}!"}).encode()
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)


ThreadingHTTPServer(("127.0.0.1", int(os.environ["PORT"])), Agent).serve_forever()
