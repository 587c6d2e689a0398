"""An agent that plans: it takes a text apart, has each part summarised by whoever can, has the result reviewed,
mends what the reviewer misses, and has a report set.

It knows no address of any other agent. It calls capabilities by name, as hosts under `.reach`; `http_proxy` in its
environment does the rest. All that makes its calls one trace is the `traceparent` header it passes on.

POST /process {"task": "a text of several paragraphs", "title": "..."} -> {"report", "summary", "review", "parts"}
"""

import json
import os
from concurrent.futures import ThreadPoolExecutor
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.error import HTTPError
from urllib.request import Request, urlopen

MAX_PARTS = 8


def call(capability: str, job: dict, trace: str | None) -> dict:
    headers = {"Content-Type": "application/json"}
    if trace:
        headers["traceparent"] = trace
    request = Request(f"http://{capability}.reach/process", json.dumps(job).encode(), headers)
    with urlopen(request, timeout=30) as answer:
        return json.load(answer)


def plan(task: str, title: str, trace: str | None) -> dict:
    parts = [part.strip() for part in task.split("\n\n") if part.strip()][:MAX_PARTS]
    jobs = [{"task": part, "sentences": 1} for part in parts]
    with ThreadPoolExecutor(max_workers=len(jobs)) as pool:
        summaries = [answer["summary"] for answer in pool.map(lambda job: call("summarize", job, trace), jobs)]
    review = call("review", {"text": task, "summary": " ".join(summaries)}, trace)
    if review["missing"]:
        # Ask for more of the part that says most about what was missed.
        weakest = max(range(len(parts)), key=lambda n: sum(parts[n].lower().count(word) for word in review["missing"]))
        again = {"task": parts[weakest], "sentences": 2, "about": review["missing"]}
        summaries[weakest] = call("summarize", again, trace)["summary"]
        review = call("review", {"text": task, "summary": " ".join(summaries)}, trace)
    report = call("write.report", {"title": title, "paragraphs": summaries, "footer": review["verdict"]}, trace)
    return {"report": report["report"], "summary": summaries, "review": review, "parts": len(parts)}


class Agent(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    wbufsize = -1  # head and body leave together

    def do_GET(self) -> None:
        self.answer(200, {"status": "ok"})

    def do_POST(self) -> None:
        try:
            job = json.loads(self.rfile.read(int(self.headers.get("Content-Length") or 0)))
            task, title = str(job["task"]), str(job.get("title") or "Report")
            if not task.strip():
                raise ValueError("task is empty")
        except (ValueError, KeyError, TypeError) as error:
            self.answer(400, {"error": f'send {{"task": "a text"}}: {error}'})
            return
        try:
            self.answer(200, plan(task, title, self.headers.get("traceparent")))
        except HTTPError as error:
            self.answer(
                502, {"error": f"a peer answered {error.code}", "peer": error.read(2000).decode("utf-8", "replace")}
            )
        except (OSError, KeyError, ValueError) as error:
            self.answer(502, {"error": f"a peer could not be asked: {error}"})

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
