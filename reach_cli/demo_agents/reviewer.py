"""An agent that reviews a summary: does it keep the words the text is about, and is it short?

POST /process {"text", "summary"} -> {"verdict", "coverage" (0..1), "length" (share of the text), "missing": [word]}
"""

import json
import os
import re
from collections import Counter
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

TOPICS = 6
COMMON = frozenset(
    re.findall(
        r"\w+",
        "about after again all also and any are because been before but can could does each for from had has "
        "have into its more most must nobody not now one only other others out over own same should some such "
        "than that the their them then there these they this those through too until very was were what when "
        "where which while who will with would you",
    )
)


def topics(text: str) -> list[str]:
    """The words the text uses most, and more than once."""
    counts = Counter(word for word in re.findall(r"[a-z]{4,}", text.lower()) if word not in COMMON)
    return [word for word, count in sorted(counts.items(), key=lambda item: (-item[1], item[0]))[:TOPICS] if count > 1]


def review(text: str, summary: str) -> dict:
    wanted = topics(text)
    missing = [word for word in wanted if word not in summary.lower()]
    coverage = 1 - len(missing) / len(wanted) if wanted else 1.0
    length = len(summary) / max(1, len(text))
    verdict = f"Keeps {len(wanted) - len(missing)} of {len(wanted)} topics in {length:.0%} of the length."
    return {"verdict": verdict, "coverage": round(coverage, 2), "length": round(length, 2), "missing": missing}


class Agent(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    wbufsize = -1  # head and body leave together

    def do_GET(self) -> None:
        self.answer(200, {"status": "ok"})

    def do_POST(self) -> None:
        try:
            job = json.loads(self.rfile.read(int(self.headers.get("Content-Length") or 0)))
            verdict = review(str(job["text"]), str(job["summary"]))
        except (ValueError, KeyError, TypeError) as error:
            self.answer(400, {"error": f'send {{"text", "summary"}}: {error}'})
        else:
            self.answer(200, verdict)

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
