// @modelcontextprotocol/ext-tasks 0.2 over @modelcontextprotocol/client 2.4: dialect B ("legacy") or C ("auto").
import { Client, StreamableHTTPClientTransport } from "@modelcontextprotocol/client";
import {
  createApplicationInputHandler,
  createTaskSessionFromClient,
} from "@modelcontextprotocol/ext-tasks/client";

import { SAMPLED, answer, main } from "./scenes.mjs";

const CLIENT = { name: "ext", version: "1" };
const CAPABILITIES = { elicitation: { form: {} }, sampling: {} };

async function play(scene) {
  const [era = "auto"] = scene.options;
  const client = new Client(CLIENT, {
    capabilities: CAPABILITIES,
    versionNegotiation: { mode: era },
  });
  await client.connect(new StreamableHTTPClientTransport(new URL(scene.url)));
  const protocolVersion = client.getNegotiatedProtocolVersion();
  scene.tell({ version: protocolVersion });
  const asked = (result) => {
    scene.asked();
    return result;
  };
  const session = createTaskSessionFromClient(client, {
    endpointId: scene.url,
    onInputRequest: createApplicationInputHandler({
      elicitation: ({ params }) => asked({ action: "accept", content: answer(params.requestedSchema) }),
      sampling: () => asked(SAMPLED),
      roots: () => asked({ roots: [] }),
    }),
    rawDispatch: (request, options) => post(scene.url, protocolVersion, request, options),
    v2RequestFraming: { protocolVersion, clientInfo: CLIENT, clientCapabilities: CAPABILITIES },
  });
  try {
    await call(session, scene, client.getProtocolEra() === "modern" ? "C" : "B");
  } finally {
    await session.close();
    await client.close();
  }
}

async function call(session, scene, dialect) {
  const plain = scene.scene.startsWith("plain") || scene.scene === "progress";
  // In the handshake era the caller decides; in the other one it can but allow.
  const preference = plain && dialect === "B" ? "forbid" : plain ? "allow" : "prefer";
  const execution = await session.callTool(scene.tool, scene.arguments, {
    task: { preference, retentionMs: 60_000 },
  });
  if (execution.kind === "task") scene.tell({ dialect });
  if (scene.scene === "cancel") {
    await execution.cancel();
  }
  const { outcome } = await execution.settle({
    onEvent: ({ task }) => task && scene.saw(task.status),
  });
  if (execution.kind === "task") scene.saw(outcome.status);
  if (outcome.status === "completed") scene.result(outcome.result);
  if (scene.scene === "list") {
    const listed = await session.listTasks();
    scene.tell({ listed: listed.tasks.some((one) => one.taskId === execution.handle.taskId) });
  }
  if (outcome.status === "failed") throw outcome.error;
}

let requests = 0;

// The package leaves the exchange of task messages to its host.
async function post(url, version, request, { signal } = {}) {
  requests += 1;
  const id = `ext-${requests}`;
  const { method, params } = request;
  const name = method === "tools/call" ? params.name : params.taskId;
  const answered = await fetch(url, {
    method: "POST",
    signal,
    headers: {
      accept: "application/json, text/event-stream",
      "content-type": "application/json",
      "mcp-protocol-version": version,
      "mcp-method": method,
      "mcp-name": name,
    },
    body: JSON.stringify({ jsonrpc: "2.0", id, ...request }),
  });
  const text = await answered.text();
  const streamed = answered.headers.get("content-type")?.startsWith("text/event-stream");
  const messages = streamed
    ? text.split("\n").filter((line) => line.startsWith("data:") && line.length > 6).map((line) => line.slice(5))
    : [text];
  const response = messages.map((message) => JSON.parse(message)).find((message) => message.id === id);
  if (!response) throw new Error(`no response (${answered.status}): ${text.slice(0, 300)}`);
  return response.error
    ? { kind: "error", error: response.error }
    : { kind: "result", result: response.result };
}

await main(play);
