"""An agent that sets a report in plain text. scribe.mjs is the same in JavaScript, for where Node is installed.

POST /process {"title", "paragraphs": [text], "footer"} -> {"report", "set_by"}
"""

import json
import os
import textwrap
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

WIDTH = 76


def typeset(title: str, paragraphs: list[str], footer: str) -> str:
    lines = [title, "=" * len(title), ""]
    for number, paragraph in enumerate(paragraphs, 1):
        head = f"{number}. "
        lines += textwrap.wrap(paragraph, WIDTH, initial_indent=head, subsequent_indent=" " * len(head))
    return "\n".join([*lines, "", f"({footer})"] if footer else lines)


class Agent(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    wbufsize = -1  # head and body leave together

    def do_GET(self) -> None:
        self.answer(200, {"status": "ok"})

    def do_POST(self) -> None:
        try:
            job = json.loads(self.rfile.read(int(self.headers.get("Content-Length") or 0)))
            paragraphs = [str(paragraph) for paragraph in job["paragraphs"]]
            report = typeset(str(job.get("title") or "Report"), paragraphs, str(job.get("footer") or ""))
        except (ValueError, KeyError, TypeError) as error:
            self.answer(400, {"error": f'send {{"title", "paragraphs"}}: {error}'})
        else:
            self.answer(200, {"report": report, "set_by": "Python"})

    def answer(self, status: int, document: dict) -> None:
        body = json.dumps(document).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        pass


if __name__ == "__main__":
    ThreadingHTTPServer(("127.0.0.1", int(os.environ["PORT"])), Agent).serve_forever()
