// The same agent in JavaScript: `reach run --capability greet -- node examples/greeter.mjs`
import { createServer } from "node:http";

createServer(async (request, response) => {
  const chunks = [];
  for await (const chunk of request) chunks.push(chunk);
  const job = JSON.parse(Buffer.concat(chunks));
  response.setHeader("Content-Type", "application/json");
  response.end(JSON.stringify({ greeting: `Hello, ${job.task}!` }));
}).listen(process.env.PORT, "127.0.0.1");
