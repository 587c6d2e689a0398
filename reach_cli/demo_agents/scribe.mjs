// An agent that sets a report in plain text. scribe.py is the same in Python, for where Node is missing.
//
// POST /process {"title", "paragraphs": [text], "footer"} -> {"report", "set_by"}

import { createServer } from "node:http";

const WIDTH = 76;

function wrap(text, head) {
  const lines = [];
  let line = head;
  for (const word of text.split(/\s+/).filter(Boolean)) {
    if (line.trim() && line.length + word.length > WIDTH) {
      lines.push(line.trimEnd());
      line = " ".repeat(head.length);
    }
    line += word + " ";
  }
  return [...lines, line.trimEnd()];
}

function typeset({ title = "Report", paragraphs, footer }) {
  const lines = [title, "=".repeat(title.length), ""];
  paragraphs.forEach((paragraph, n) => lines.push(...wrap(String(paragraph), `${n + 1}. `)));
  if (footer) lines.push("", `(${footer})`);
  return lines.join("\n");
}

const server = createServer(async (request, response) => {
  const answer = (status, document) => {
    const body = JSON.stringify(document);
    response.writeHead(status, { "Content-Type": "application/json", "Content-Length": Buffer.byteLength(body) });
    response.end(body);
  };
  if (request.method !== "POST") return answer(200, { status: "ok" });
  try {
    const chunks = [];
    for await (const chunk of request) chunks.push(chunk);
    answer(200, { report: typeset(JSON.parse(Buffer.concat(chunks))), set_by: "Node" });
  } catch (error) {
    answer(400, { error: `send {"title", "paragraphs"}: ${error.message}` });
  }
});

server.listen(Number(process.env.PORT), "127.0.0.1");
