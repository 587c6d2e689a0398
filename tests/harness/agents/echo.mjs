// A plain Node agent: what a caller sent comes back as JSON.
import { createServer } from "node:http";
import { createHash } from "node:crypto";
import { renameSync, writeFileSync } from "node:fs";

const option = (name, fallback) => {
  const at = process.argv.indexOf(`--${name}`);
  return at < 0 ? fallback : process.argv[at + 1];
};

const server = createServer(async (request, response) => {
  const hash = createHash("sha256");
  let size = 0;
  let body = "";
  for await (const block of request) {
    hash.update(block);
    size += block.length;
    if (size <= 4096) body += block;
  }
  const pairs = [];
  for (let i = 0; i < request.rawHeaders.length; i += 2) {
    pairs.push([request.rawHeaders[i], request.rawHeaders[i + 1]]);
  }
  response.setHeader("content-type", "application/json");
  response.end(JSON.stringify({
    agent: option("name", "node"), pid: process.pid, method: request.method, path: request.url,
    headers: pairs, body_bytes: size, body_sha256: hash.digest("hex"), body: size <= 4096 ? body : null,
  }));
});

server.listen(0, "127.0.0.1", () => {
  const { port } = server.address();
  const file = option("ready-file");
  writeFileSync(`${file}.new`, JSON.stringify({ pid: process.pid, port, url: `http://127.0.0.1:${port}` }));
  renameSync(`${file}.new`, file);
});
