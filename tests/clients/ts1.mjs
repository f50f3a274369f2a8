// @modelcontextprotocol/sdk 1.32, `client.experimental.tasks`: dialect B of the official package.
import { Client } from "@modelcontextprotocol/sdk/client/index.js";
import { StreamableHTTPClientTransport } from "@modelcontextprotocol/sdk/client/streamableHttp.js";
import {
  CallToolResultSchema,
  CreateMessageRequestSchema,
  ElicitRequestSchema,
} from "@modelcontextprotocol/sdk/types.js";

import { SAMPLED, answer, main } from "./scenes.mjs";

async function play(scene) {
  const capabilities = { elicitation: { form: {} }, sampling: {} };
  const client = new Client({ name: "ts1", version: "1" }, { capabilities });
  client.setRequestHandler(ElicitRequestSchema, ({ params }) => {
    scene.asked();
    return { action: "accept", content: answer(params.requestedSchema) };
  });
  client.setRequestHandler(CreateMessageRequestSchema, () => {
    scene.asked();
    return SAMPLED;
  });
  const transport = new StreamableHTTPClientTransport(new URL(scene.url));
  try {
    await client.connect(transport);
    scene.tell({ version: transport.protocolVersion });
    const call = { name: scene.tool, arguments: scene.arguments };
    if (scene.scene === "progress") {
      scene.result(await client.callTool(call, CallToolResultSchema, { onprogress: () => scene.step() }));
    } else if (scene.scene.startsWith("plain")) {
      scene.result(await client.callTool(call));
    } else {
      await task(client, scene, call);
    }
  } finally {
    await client.close();
  }
}

async function task(client, scene, call) {
  const { tasks } = client.experimental;
  let taskId;
  const options = { task: { ttl: 60_000 } };
  for await (const message of tasks.callToolStream(call, CallToolResultSchema, options)) {
    if (message.task) scene.saw(message.task.status);
    if (message.type === "taskCreated") {
      ({ taskId } = message.task);
      scene.tell({ dialect: "B" });
      if (scene.scene === "cancel") scene.saw((await tasks.cancelTask(taskId)).status);
    }
    if (message.type === "result") scene.result(message.result);
    if (message.type === "error" && scene.scene !== "cancel") {
      // It tells no more than that; what failed is kept for those who ask.
      scene.tell({ ended: message.error.message });
      scene.result(await tasks.getTaskResult(taskId, CallToolResultSchema));
    }
  }
  scene.saw((await tasks.getTask(taskId)).status);
  if (scene.scene === "list") {
    const listed = await tasks.listTasks();
    scene.tell({ listed: listed.tasks.some((one) => one.taskId === taskId) });
  }
}

await main(play);
