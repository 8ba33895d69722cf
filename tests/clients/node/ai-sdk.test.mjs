// The Vercel AI SDK, through each of its providers that can point at a gateway.
import assert from "node:assert/strict";
import { test } from "node:test";
import { createAnthropic } from "@ai-sdk/anthropic";
import { createOpenAI } from "@ai-sdk/openai";
import { createOpenAICompatible } from "@ai-sdk/openai-compatible";
import {
  APICallError,
  Output,
  embed,
  experimental_generateSpeech as generateSpeech,
  experimental_transcribe as transcribe,
  generateImage,
  generateText,
  stepCountIs,
  streamText,
  tool,
} from "ai";
import { z } from "zod";
import { TEXT, gateway } from "./gateway.mjs";

const baseURL = `${gateway.url}/v1`;
const prompt = "What is the capital of France?";
const compatible = (apiKey) => createOpenAICompatible({ name: "breakeven", baseURL, apiKey, supportsStructuredOutputs: true });
const models = {
  "openai-compatible": compatible(gateway.key)(gateway.model),
  "openai, responses": createOpenAI({ baseURL, apiKey: gateway.key })(gateway.model),
  "openai, chat": createOpenAI({ baseURL, apiKey: gateway.key }).chat(gateway.model),
  anthropic: createAnthropic({ baseURL, apiKey: gateway.key })(gateway.model),
};
const City = z.object({ name: z.string(), population: z.int() });
const weather = tool({
  description: "The weather of a city.",
  inputSchema: z.object({ city: z.string() }),
  execute: async ({ city }) => `sunny in ${city}`,
});

for (const [name, model] of Object.entries(models)) {
  test(`${name}: chat`, async () => {
    const { text, usage } = await generateText({ model, prompt });
    assert.equal(text, TEXT);
    assert.equal(usage.outputTokens, 8);
  });

  test(`${name}: stream`, async () => {
    const { textStream } = streamText({ model, prompt });
    let said = "";
    for await (const piece of textStream) said += piece;
    assert.equal(said, TEXT);
  });

  test(`${name}: tools`, async () => {
    const { text } = await generateText({ model, prompt, tools: { weather }, stopWhen: stepCountIs(2) });
    assert.match(text, /The tool said: .*sunny in Paris/);
  });

  test(`${name}: a second turn`, async () => {
    const asked = { role: "user", content: prompt };
    const first = await generateText({ model, messages: [asked] });
    const messages = [asked, ...first.response.messages, { role: "user", content: "Are you sure?" }];
    assert.equal((await generateText({ model, messages })).text, TEXT);
  });

  test(`${name}: structured output`, async () => {
    const { output } = await generateText({ model, prompt, output: Output.object({ schema: City }) });
    assert.deepEqual(output, { name: "Paris", population: 7 });
  });
}

test("embeddings", async () => {
  const { embedding } = await embed({ model: compatible(gateway.key).embeddingModel(gateway.model), value: "one" });
  assert.deepEqual(embedding, [0.25, -0.5, 1]);
});

test("errors", async () => {
  for (const [apiKey, name, status] of [
    ["bk-wrong", gateway.model, 401],
    [gateway.key, "no-such-model", 404],
  ]) {
    await assert.rejects(generateText({ model: compatible(apiKey)(name), prompt, maxRetries: 0 }), (error) => {
      assert.ok(APICallError.isInstance(error));
      assert.equal(error.statusCode, status);
      return true;
    });
  }
});

test("a spent budget", async () => {
  const model = compatible(gateway.poor_key)(gateway.model);
  await assert.rejects(generateText({ model, prompt, maxRetries: 0 }), /budget/);
});

test("openai: an image, speech and a transcript", async () => {
  const openai = createOpenAI({ baseURL, apiKey: gateway.key });
  const { image } = await generateImage({ model: openai.image("draws"), prompt: "a pixel" });
  assert.equal(image.mediaType, "image/png");
  const { audio } = await generateSpeech({ model: openai.speech("speaks"), text: "well said" });
  assert.equal(Buffer.from(audio.uint8Array).subarray(0, 3).toString(), "ID3");
  const { text } = await transcribe({ model: openai.transcription("listens"), audio: audio.uint8Array });
  assert.equal(text, "The quick brown fox.");
});
