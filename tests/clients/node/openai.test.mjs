// The official OpenAI client for Node.
import assert from "node:assert/strict";
import { test } from "node:test";
import OpenAI, { AzureOpenAI } from "openai";
import { zodResponseFormat } from "openai/helpers/zod";
import { ResponsesWS } from "openai/resources/responses/ws";
import { z } from "zod";
import { TEXT, gateway } from "./gateway.mjs";

const client = new OpenAI({ baseURL: `${gateway.url}/v1`, apiKey: gateway.key });
const model = gateway.model;
const messages = [{ role: "user", content: "What is the capital of France?" }];
const weather = {
  type: "function",
  function: {
    name: "weather",
    parameters: { type: "object", properties: { city: { type: "string" } }, required: ["city"] },
  },
};

test("chat", async () => {
  const answer = await client.chat.completions.create({ model, messages });
  assert.equal(answer.choices[0].message.content, TEXT);
});

test("stream", async () => {
  const stream = await client.chat.completions.create({ model, messages, stream: true });
  let said = "";
  for await (const chunk of stream) said += chunk.choices[0].delta.content ?? "";
  assert.equal(said, TEXT);
});

test("as apps on Azure ask", async () => {
  const azure = new AzureOpenAI({ endpoint: gateway.url, apiKey: gateway.key, apiVersion: "2026-10-01" });
  const answer = await azure.chat.completions.create({ model: "auto", messages });
  assert.equal(answer.choices[0].message.content, TEXT);
});

test("tools and their results", async () => {
  const first = await client.chat.completions.create({ model, messages, tools: [weather] });
  const [call] = first.choices[0].message.tool_calls;
  assert.deepEqual(JSON.parse(call.function.arguments), { city: "Paris" });
  const told = [...messages, first.choices[0].message, { role: "tool", tool_call_id: call.id, content: "sunny" }];
  const second = await client.chat.completions.create({ model, messages: told, tools: [weather] });
  assert.equal(second.choices[0].message.content, "The tool said: sunny");
});

test("structured output", async () => {
  const City = z.object({ name: z.string(), population: z.int() });
  const answer = await client.chat.completions.parse({
    model,
    messages,
    response_format: zodResponseFormat(City, "city"),
  });
  assert.deepEqual(answer.choices[0].message.parsed, { name: "Paris", population: 7 });
});

test("responses", async () => {
  const answer = await client.responses.create({ model, input: "What is the capital of France?" });
  assert.equal(answer.output_text, TEXT);
});

test("responses stream", async () => {
  let said = "";
  const stream = await client.responses.create({ model, input: "Capital of France?", stream: true });
  for await (const event of stream) if (event.type === "response.output_text.delta") said += event.delta;
  assert.equal(said, TEXT);
});

test("a background stream that was left is fetched from where it was", async () => {
  const asked = { model, input: "Capital of France?", background: true, stream: true };
  let id;
  for await (const event of await client.responses.create(asked)) {
    id = event.response.id;
    break;
  }
  let said = "";
  for await (const event of await client.responses.retrieve(id, { stream: true, starting_after: 0 })) {
    if (event.type === "response.output_text.delta") said += event.delta;
  }
  assert.equal(said, TEXT);
});

test("embeddings", async () => {
  const answer = await client.embeddings.create({ model, input: "one" });
  assert.deepEqual(answer.data[0].embedding, [0.25, -0.5, 1]);
});

test("errors", async () => {
  const stranger = new OpenAI({ baseURL: `${gateway.url}/v1`, apiKey: "bk-wrong" });
  await assert.rejects(stranger.chat.completions.create({ model, messages }), OpenAI.AuthenticationError);
  await assert.rejects(client.chat.completions.create({ model: "no-such-model", messages }), OpenAI.NotFoundError);
});

test("a spent budget is told once and not retried", async () => {
  let sent = 0;
  const counted = (...asked) => {
    sent += 1;
    return fetch(...asked);
  };
  const poor = new OpenAI({ baseURL: `${gateway.url}/v1`, apiKey: gateway.poor_key, maxRetries: 5, fetch: counted });
  await assert.rejects(poor.chat.completions.create({ model, messages }), { code: "insufficient_quota" });
  assert.equal(sent, 1);
});

test("a batch", async () => {
  const line = { custom_id: "mine", method: "POST", url: "/v1/chat/completions", body: { model, messages } };
  const upload = await OpenAI.toFile(Buffer.from(JSON.stringify(line)), "in.jsonl");
  const file = await client.files.create({ file: upload, purpose: "batch" });
  let batch = await client.batches.create({
    input_file_id: file.id,
    endpoint: "/v1/chat/completions",
    completion_window: "24h",
  });
  while (!["completed", "failed", "expired"].includes(batch.status)) {
    await new Promise((resolve) => setTimeout(resolve, 100));
    batch = await client.batches.retrieve(batch.id);
  }
  const answer = JSON.parse(await (await client.files.content(batch.output_file_id)).text());
  assert.equal(answer.custom_id, "mine");
  assert.equal(answer.response.body.choices[0].message.content, TEXT);
});

test("images, sound and moderation", async () => {
  const drawn = await client.images.generate({ model: "draws", prompt: "a pixel" });
  const pixel = await OpenAI.toFile(Buffer.from(drawn.data[0].b64_json, "base64"), "a.png", { type: "image/png" });
  assert.equal((await client.images.edit({ model: "draws", image: pixel, prompt: "brighter" })).data.length, 1);
  const spoken = await client.audio.speech.create({ model: "speaks", voice: "alloy", input: "well said" });
  const sound = Buffer.from(await spoken.arrayBuffer());
  assert.equal(sound.subarray(0, 3).toString(), "ID3");
  const file = await OpenAI.toFile(sound, "a.mp3");
  assert.equal((await client.audio.transcriptions.create({ model: "listens", file })).text, "The quick brown fox.");
  assert.equal((await client.moderations.create({ input: "be kind" })).results[0].flagged, false);
});

test("responses over a WebSocket", async () => {
  const socket = new ResponsesWS(client);
  let previous;
  for (const input of ["What is the capital of France?", "And again?"]) {
    socket.send({ type: "response.create", model, input, store: false, previous_response_id: previous });
    for await (const event of socket) {
      if (event.type === "error") throw event.error;
      if (event.type !== "message" || event.message.type !== "response.completed") continue;
      previous = event.message.response.id;
      assert.equal(event.message.response.output[0].content[0].text, TEXT);
      break;
    }
  }
  socket.close();
});
