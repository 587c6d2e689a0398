"""An agent that summarises: it keeps the sentences whose words the text uses most (Luhn, 1958).

POST /process {"task": "a text", "sentences": 1, "about": ["word"]} -> {"summary"}
"""

import json
import os
import re
from collections import Counter
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

COMMON = frozenset(
    re.findall(
        r"\w+",
        "about after again all also and any are because been before but can could does each for from had has "
        "have her his how into its just like many may more most must not now one only other our out over own "
        "same she should since some such than that the their them then there these they this those through "
        "too two under until very was were what when where which while who whose why will with without would "
        "you your",
    )
)


def words(text: str) -> list[str]:
    return [word for word in re.findall(r"[a-z]{3,}", text.lower()) if word not in COMMON]


def summarise(text: str, sentences: int, about: list[str]) -> str:
    """The best sentences, in their own order. Words in `about` count as much as the commonest ones."""
    parts = re.split(r"(?<=[.!?])\s+", " ".join(text.split()))
    weight = Counter(words(text))
    for word in about:
        weight[word] += max(weight.values(), default=1)

    def score(n: int) -> float:
        found = set(words(parts[n]))
        return sum(weight[word] for word in found) / (len(found) + 3)

    best = sorted(sorted(range(len(parts)), key=score, reverse=True)[:sentences])
    return " ".join(parts[n] for n in best)


class Agent(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    wbufsize = -1  # head and body leave together

    def do_GET(self) -> None:
        self.answer(200, {"status": "ok"})

    def do_POST(self) -> None:
        try:
            job = json.loads(self.rfile.read(int(self.headers.get("Content-Length") or 0)))
            about = [str(word).lower() for word in job.get("about") or []]
            summary = summarise(str(job["task"]), max(1, int(job.get("sentences") or 1)), about)
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            self.answer(400, {"error": f'send {{"task": "a text"}}: {error}'})
        else:
            self.answer(200, {"summary": summary})

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
