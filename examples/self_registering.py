"""An agent that registers itself, as those written for the articles' interface do: name and capabilities are its own.

    reach run -- python3 examples/self_registering.py
"""

import json
import os
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.request import Request, urlopen

BASE_URL, PORT = os.environ["REACH_URL"], int(os.environ["PORT"])


class Agent(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        self.answer({"status": "ok"})

    def do_POST(self) -> None:
        job = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        self.answer({"reversed": str(job["task"])[::-1], "trace_id": job.get("trace_id")})

    def answer(self, document: dict) -> None:
        body = json.dumps(document).encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)


server = ThreadingHTTPServer(("127.0.0.1", PORT), Agent)
threading.Thread(target=server.serve_forever).start()
me = {
    "agent_id": "reverser-01",
    "address": f"http://127.0.0.1:{PORT}",
    "health_path": "/health",
    "max_concurrency": 4,
    "capabilities": ["reverse"],
}
request = Request(f"{BASE_URL}/agents/register", json.dumps(me).encode(), {"Content-Type": "application/json"})
print(json.load(urlopen(request)))
