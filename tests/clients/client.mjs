// A client of HTTPS in Node: `node client.mjs URL CA VERSION`, where VERSION is h1 or h2. It does
// what tests/tests/real_clients says that each client does, and prints a line for each answer.
import { createHash } from "node:crypto";
import { readFileSync } from "node:fs";
import http2 from "node:http2";
import https from "node:https";

const [base, authority, version] = process.argv.slice(2);
const ca = readFileSync(authority);
const UPLOAD = Buffer.from(Array.from({ length: 300_000 }, (_, index) => (index * 7) % 251));
const PARALLEL = 20;

async function whole(stream) {
  const pieces = [];
  for await (const piece of stream) pieces.push(piece);
  return Buffer.concat(pieces);
}

function overHttp1() {
  const agent = new https.Agent({ ca, keepAlive: true });
  const ask = (method, path, body) =>
    new Promise((resolve, reject) => {
      const headers = body ? { "Content-Length": body.length } : {};
      const request = https.request(base + path, { method, agent, headers }, async (answer) => {
        const spoken = `h${answer.httpVersionMajor}`;
        resolve({ status: answer.statusCode, spoken, headers: answer.headers, body: await whole(answer) });
      });
      request.on("error", reject);
      request.end(body);
    });
  // The agent's free connection goes, its sessions stay.
  const close = () => Object.values(agent.freeSockets).flat().forEach((socket) => socket.destroy());
  return { ask, renew: close, close };
}

function overHttp2() {
  let ticket;
  const connect = (session) => {
    const made = http2.connect(base, { ca, session });
    made.socket.on("session", (one) => (ticket = one));
    return made;
  };
  let connection = connect();
  const ask = (method, path, body) =>
    new Promise((resolve, reject) => {
      const stream = connection.request({ ":method": method, ":path": path });
      stream.on("error", reject);
      stream.on("response", async (headers) => {
        const spoken = connection.alpnProtocol;
        resolve({ status: headers[":status"], spoken, headers, body: await whole(stream) });
      });
      stream.end(body);
    });
  const renew = () => {
    connection.close();
    connection = connect(ticket);
  };
  return { ask, renew, close: () => connection.close() };
}

const client = version === "h2" ? overHttp2() : overHttp1();

async function tell(task, method, path, body) {
  const answer = await client.ask(method, path, body);
  const sum = createHash("sha256").update(answer.body).digest("hex");
  console.log(`${task} ${answer.status} ${answer.spoken} ${sum}`);
}

await tell("small", "GET", "/small");
await tell("large", "GET", "/large");
await tell("chunks", "GET", "/chunks");
await tell("upload", "POST", "/echo", UPLOAD);
await tell("head", "HEAD", "/large");
await tell("missing", "GET", "/missing");
await Promise.all(Array.from({ length: PARALLEL }, () => tell("many", "GET", "/large")));
client.renew();
const again = await client.ask("GET", "/small");
console.log(`again ${again.headers["x-reused"]}`);
client.close();
