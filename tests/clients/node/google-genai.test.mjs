// The official Google client for Node.
import assert from "node:assert/strict";
import { test } from "node:test";
import { ApiError, GoogleGenAI, Type } from "@google/genai";
import { TEXT, gateway } from "./gateway.mjs";

const client = new GoogleGenAI({ apiKey: gateway.key, httpOptions: { baseUrl: gateway.url } });
const model = gateway.model;
const contents = "What is the capital of France?";
const weather = {
  name: "weather",
  parameters: { type: Type.OBJECT, properties: { city: { type: Type.STRING } }, required: ["city"] },
};
const tools = [{ functionDeclarations: [weather] }];

test("chat", async () => {
  const answer = await client.models.generateContent({ model: "auto", contents });
  assert.equal(answer.text, TEXT);
  assert.equal(answer.candidates[0].finishReason, "STOP");
  assert.equal(answer.usageMetadata.totalTokenCount, 28);
});

test("stream", async () => {
  const stream = await client.models.generateContentStream({ model, contents });
  let said = "";
  for await (const chunk of stream) said += chunk.text ?? "";
  assert.equal(said, TEXT);
});

test("functions and what they gave", async () => {
  const first = await client.models.generateContent({ model, contents, config: { tools } });
  const [call] = first.functionCalls;
  assert.deepEqual([call.name, call.args], ["weather", { city: "Paris" }]);
  const given = { functionResponse: { id: call.id, name: call.name, response: { result: "sunny" } } };
  const told = [
    { role: "user", parts: [{ text: contents }] },
    first.candidates[0].content,
    { role: "user", parts: [given] },
  ];
  const second = await client.models.generateContent({ model, contents: told, config: { tools } });
  assert.equal(second.text, 'The tool said: {"result":"sunny"}');
});

test("a session", async () => {
  const session = client.chats.create({ model });
  assert.equal((await session.sendMessage({ message: contents })).text, TEXT);
  let said = "";
  for await (const chunk of await session.sendMessageStream({ message: "And again?" })) said += chunk.text ?? "";
  assert.equal(said, TEXT);
  assert.equal((await session.sendMessage({ message: "And again?" })).text, TEXT);
  assert.deepEqual(session.getHistory(true), session.getHistory());
});

test("structured output", async () => {
  const responseSchema = { type: Type.ARRAY, items: { type: Type.OBJECT, properties: { name: { type: Type.STRING } } } };
  const config = { responseMimeType: "application/json", responseSchema };
  const answer = await client.models.generateContent({ model, contents, config });
  assert.deepEqual(JSON.parse(answer.text), [{ name: "Paris" }]);
});

test("tokens, embeddings and models", async () => {
  assert.ok((await client.models.countTokens({ model, contents })).totalTokens > 0);
  const answer = await client.models.embedContent({ model, contents: ["one", "two"] });
  assert.deepEqual(answer.embeddings.map((row) => row.values), [[0.25, -0.5, 1], [0.25, -0.5, 1]]);
  const listed = [];
  for await (const one of await client.models.list({ config: { pageSize: 2 } })) listed.push(one.name);
  assert.ok(listed.includes(`models/${model}`));
});

test("errors", async () => {
  const stranger = new GoogleGenAI({ apiKey: "bk-wrong", httpOptions: { baseUrl: gateway.url } });
  await assert.rejects(stranger.models.generateContent({ model, contents }), (error) => {
    assert.ok(error instanceof ApiError);
    assert.equal(error.status, 401);
    return error.message.includes("not known here");
  });
  await assert.rejects(client.models.generateContent({ model: "no-such-model", contents }), { status: 404 });
});
