// A Node agent that writes each request it sees into a file: `{"target", "length"}` a line.
import { appendFileSync, writeFileSync } from "node:fs";
import { createServer } from "node:http";

const option = (name) => process.argv[process.argv.indexOf(`--${name}`) + 1];
const server = createServer((request, response) => {
  let length = 0;
  request.on("data", (data) => (length += data.length));
  request.on("end", () => {
    appendFileSync(option("seen"), JSON.stringify({ target: request.url, length }) + "\n");
    response.end(`node ${request.url}`);
  });
});
server.listen(0, "127.0.0.1", () =>
  writeFileSync(option("ready-file"), JSON.stringify({ url: `http://127.0.0.1:${server.address().port}` })),
);
