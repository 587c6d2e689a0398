// POSTs with Node's own fetch; a streamed body is sent chunked.
const [url, streamed] = process.argv.slice(2);
const text = JSON.stringify({ task: "from node" });
const body = streamed ? new Blob([text]).stream() : text;
const answer = await fetch(url, {
  method: "POST", body, duplex: "half", headers: { "content-type": "application/json" },
});
console.log(JSON.stringify({ status: answer.status, answer: await answer.json() }));
