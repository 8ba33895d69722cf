"""What the HTTP adapters make of a refusal: whose fault it is, and whether another model may answer."""

from contextlib import aclosing

import pytest

from backends.errors import Untranslatable, UpstreamRejected
from backends.formats.error_bodies import in_openai_shape
from backends.openai_compatible import OpenAICompatibleBackend
from backends.protocol import Call, Timeouts
from backends.usage import Usage
from tests import read_stream
from tests.scripted_provider import Raw, ScriptedProvider

JSON = {"content-type": "application/json"}


async def ask(provider: ScriptedProvider) -> None:
    call = Call("chat.completions", "the-model", b'{"model":"auto","stream":true}', True, "r-1", Timeouts())
    async with aclosing(OpenAICompatibleBackend("b", provider.base_url, None)) as backend:
        await read_stream.collect(backend, call)


@pytest.mark.parametrize(
    ("status", "body", "kind"),
    [
        (404, b'{"error":{"message":"The model `the-model` does not exist."}}', Untranslatable),
        (410, b'{"error":{"message":"the-model is retired."}}', Untranslatable),
        (400, b'{"error":{"message":"No such model.","code":"model_not_found"}}', Untranslatable),
        (400, b'{"error":{"message":"Model Not Exist","type":"invalid_request_error"}}', Untranslatable),
        (
            400,
            b'{"error":{"message":"The model has been decommissioned","code":"model_decommissioned"}}',
            Untranslatable,
        ),
        (400, b'{"error":{"message":"Unable to access it.","code":"model_not_available"}}', Untranslatable),
        (400, b'{"error":{"message":"The supported API model names are a or b, but you passed c."}}', Untranslatable),
        (400, b'{"detail":"Model voyage-9 is not supported. Supported models are [\'voyage-4\']."}', Untranslatable),
        (400, b'{"error":{"message":"a/b is not a valid model ID","code":400}}', Untranslatable),
        (400, b'{"code":"Client specified an invalid argument","error":"Model not found: grok-2"}', Untranslatable),
        (404, b'{"error":{"message":"Model not found, inaccessible, and/or not deployed"}}', Untranslatable),
        (404, b'{"error":{"message":"The API deployment for this resource does not exist."}}', Untranslatable),
        (
            410,
            b'{"error":{"message":"The requested model (the-model) is not available on SambaNova Cloud."}}',
            Untranslatable,
        ),
        (400, b'{"object":"error","message":"Only  allowed now, your model smollm","code":40301}', Untranslatable),
        (404, b'{"error":{"message":"No such file: f-1"}}', UpstreamRejected),
        (400, b'{"error":{"message":"the-model takes no images"}}', UpstreamRejected),
    ],
)
async def test_a_model_that_its_provider_does_not_know_is_asked_of_the_next(
    status: int, body: bytes, kind: type[UpstreamRejected]
) -> None:
    async with ScriptedProvider(Raw((body,), status=status, headers=JSON)) as provider:
        with pytest.raises(UpstreamRejected) as caught:
            await ask(provider)
    assert (type(caught.value), caught.value.status) == (kind, status)
    assert caught.value.body == in_openai_shape(body)


@pytest.mark.parametrize(("field", "kind"), [("tool_choice", Untranslatable), ("temperature", UpstreamRejected)])
async def test_what_a_server_lacks_of_tools_is_asked_of_the_next(field: str, kind: type[UpstreamRejected]) -> None:
    """Of LitServe 0.2.19, whose types know fewer choices than OpenAI's."""
    body = b'{"detail":[{"type":"enum","loc":["body","%b"],"msg":"Input should be","input":"x"}]}' % field.encode()
    async with ScriptedProvider(Raw((body,), status=422, headers=JSON)) as provider:
        with pytest.raises(UpstreamRejected) as caught:
            await ask(provider)
    assert type(caught.value) is kind


REFUSALS = [
    "Unsupported value: 'temperature' does not support 0.7 with this model. Only the default (1) value is supported.",
    "Unsupported parameter: 'stop' is not supported with this model.",
    "Function tools with reasoning_effort are not supported by this model in /v1/chat/completions.",
    "`temperature` is deprecated for this model.",
    "tools: Tool names must be unique.",
    "Duplicate function declaration found: search",
    "This model does not support assistant message prefill. The conversation must end with a user message.",
    r"\"thinking.type.disabled\" is not supported for this model. Use \"thinking.type.adaptive\".",
    "This model does not support response format `json_schema`.",
    "Model grok-4 does not support parameter presencePenalty.",
    "Invalid request content: Each message must have at least one content element.",
    "registry.ollama.ai/library/gemma:2b does not support tools",
    "Function calling is not enabled for this model",
    "Thinking mode does not support this tool_choice",
    "Unexpected role 'user' after role 'tool'",
    "Conversation roles must alternate user/assistant/user/assistant/...",
    "Invalid request: the message at position 2 with role 'assistant' must not be empty",
    "`reasoning_effort` must be one of `none` or `default`",
    "The thinking budget 50000 is invalid. Please choose a value between 512 and 24576.",
    "Thinking level is unsupported: THINKING_LEVEL_MINIMAL",
    "thinking_config is not supported.",
    "Budget 0 is invalid. This model only works in thinking mode.",
    r"\"auto\" tool choice requires --enable-auto-tool-choice and --tool-call-parser to be set",
    "Failed to deserialize the JSON body into the target type: messages[1]: unknown variant `image_url`",
    "tool_choice 'required' is incompatible with thinking enabled",
    "Failed to deserialize the JSON body into the target type: messages[0]: unknown variant `file`, expected `text`",
    "unsupported content[].type",
    "google/gemma-3-1b-it is not a multimodal model",
    "Model only supports text input",
    "Please ensure that function call turn comes immediately after a user turn or after a function response turn.",
    "max_tokens is too large: 32000. This model supports at most 16384 completion tokens, whereas you provided 32000.",
    "max_tokens: 128001 > 64000, which is the maximum allowed number of output tokens for claude-opus-4-5-20251101",
    "`max_completion_tokens` must be less than or equal to `65536`, the maximum value for it is less than the window",
    "Invalid max_tokens value, the valid range of max_tokens is [1, 8192]",
    "The parameter `max_completion_tokens` is not valid: integer above maximum value, expected a value <= 12288",
    "It has a maxOutputTokens value of 99999 but the supported range is from 1 (inclusive) to 65537 (exclusive).",
    "Requests with max_tokens > 4096 must have stream=true",
    # vLLM 0.32.0, in a chat, a response and a message:
    "max_tokens=5000 cannot be greater than max_model_len=2048. Please request fewer output tokens.",
    "max_output_tokens=5000 cannot be greater than max_model_len=2048. Please request fewer output tokens.",
    "max_completion_tokens=5000 cannot be greater than max_model_len=2048. Please request fewer output tokens.",
    # vLLM, SGLang:
    "token_id(s) [151936] in logit_bias contain out-of-vocab token ids. Vocabulary size: 151936",
    "logit_bias must has keys in [0, 151935], got 151936.",
    "Requested sample logprobs of 50, which is greater than max allowed: 20 (parameter=logprobs, value=50)",
    "Invalid 'tools': array too long. Expected an array with maximum length 128, but got an array with length 150.",
    "'tools' : maximum number of items is 128",
    "Maximum tools limit reached. 219 tools have been provided but the maximum is 200.",
    "Invalid 'stop': array too long. Expected an array with maximum length 4, but got an array with length 5 instead.",
    "Invalid 'tools[3].function.name': string too long. Expected a string with maximum length 64, but got one of 67.",
    "Invalid 'tools[0].function.name': string does not match pattern. Expected one that matches '^[a-zA-Z0-9_-]+$'.",
    "tools.18.custom.name: String should have at most 128 characters",
    "tools.0.custom.name: String should match pattern '^[a-zA-Z0-9_-]{1,128}$'",
    "* GenerateContentRequest.tools[0].function_declarations[53].name: Invalid function name.",
    "Unable to submit request: `f` functionDeclaration `parameters.f` schema didn't specify the schema type field.",
    "tools.19.custom.input_schema: input_schema does not support oneOf, allOf, or anyOf at the top level",
    "tools.17.custom.input_schema: JSON schema is invalid. It must match JSON Schema draft 2020-12",
    "tools.0.custom: Invalid schema: Circular reference detected in schema definitions: Node -> Node.",
    "Schemas contains too many parameters with union types (17 parameters with type arrays or anyOf).",
    "Schema is too complex for compilation. Try reducing the number of tools or simplifying tool schemas.",
    "Too many strict tools (21). The maximum number of strict tools supported is 20.",
    "Invalid schema for function 'f': In context=(), object schema missing properties.",
    "Invalid schema for response_format 'answer': In context=('properties', 'a'), array schema missing items.",
    "This response_format type is unavailable now",
    "'response_format.type' must be 'json_schema' or 'text'",
    "Function calling with a response mime type: 'application/json' is unsupported",
    "Forced function calling (ANY mode) with a response mime type: 'application/json' is unsupported",
    "Tool use with function calling is unsupported",
    "json mode cannot be combined with tool/function calling",
    "`temperature` and `top_p` cannot both be specified for this model. Please use only one.",
    "<400> InternalError.Algo.InvalidParameter: Range of max_tokens should be [1, 8192]",
    "<400> InternalError: The tool_choice parameter does not support being set to required or object",
    "Thinking may not be enabled when tool_choice forces tool use.",
    "`temperature` may only be set to 1 when thinking is enabled or in adaptive mode.",
    "Too many images provided. This model supports up to 3 images",
    "At most 1 image(s) may be provided in one prompt.",
    "messages.0.content.0.image.source.base64: image exceeds 5 MB maximum: 6291456 bytes > 5242880 bytes",
    "prompt must be a string.",
    "Field 'n': Value must be between 1 <= value <= 2, but got 20",
    "logprobs is not supported with tools + stream",
    "Cannot have 2 or more assistant messages at the end of the list.",
    "Only {'qwen3', 'glm-4.5'} support tool calls",
    "Invalid request format: Input should be a valid string at ('body', 'stop', 'str')",
    "Request preprocessing failed.",
    "The requested feature is not supported.",
    "Cannot continue an assistant message that contains tool calls.",
    "Assistant response prefill is incompatible with enable_thinking.",
    "Failed to initialize samplers: failed to parse grammar",
    "Unable to generate parser for this template. Automatic parser generation failed: unrecognized type file",
    "Invalid request: tools.function.parameters is not a valid moonshot flavored json schema, details: <At path 'a'>",
    "function name is invalid, must start with a letter and can contain letters, numbers, underscores, and dashes",
    "the message at position 1 with role 'user' contains an invalid part type: video_url",
    "invalid params, function parameters is empty (2013)",
    "thinking is enabled but reasoning_content is missing in assistant tool call message at index 2",
    "The `reasoning_content` in the thinking mode must be passed back to the API.",
    "After the (optional) system message(s), user and assistant roles should be alternating.",
    "Invalid 'content' type. Expected one of: ['str'], got list.",
    "parameter.enable_thinking must be set to false for non-streaming calls",
    "AiError: Bad input: Error: anyOf at '/' not met: required properties at '/response_format' are 'type'",
    "invalid request parameters: Requests cannot contain `assistant` role in the final position when `tools` are used.",
]


@pytest.mark.parametrize("message", REFUSALS)
async def test_what_this_model_alone_does_not_take_is_asked_of_the_next(message: str) -> None:
    body = b'{"error":{"message":"%b","type":"invalid_request_error"}}' % message.encode()
    async with ScriptedProvider(Raw((body,), status=400, headers=JSON)) as provider:
        with pytest.raises(Untranslatable, match="does not support what was requested") as caught:
            await ask(provider)
    assert (caught.value.status, caught.value.body) == (400, body)


@pytest.mark.parametrize(
    "message",
    [
        "No endpoints found that support tool use.",
        "No allowed providers are available for the selected model.",
        "No endpoints available matching your guardrail restrictions and data policy.",
    ],
)
async def test_what_none_of_openrouters_providers_does_is_asked_of_the_next(message: str) -> None:
    body = b'{"error":{"message":"%b","code":404}}' % message.encode()
    async with ScriptedProvider(Raw((body,), status=404, headers=JSON)) as provider:
        with pytest.raises(Untranslatable, match="does not support what was requested"):
            await ask(provider)


@pytest.mark.parametrize(
    ("status", "body"),
    [
        (400, b"""{"error":{"message":"Unknown parameter: 'thinking'.","code":"unknown_parameter"}}"""),
        (400, b'{"error":{"message":"Unrecognized request argument supplied: top_k","code":null}}'),
        (400, b"""{"error":{"message":"'messages.1' : [('messages.1' : property 'id' is unsupported)]"}}"""),
        (400, b"""{"error":{"message":"Extra inputs are not permitted, field: 'min_p', value: 0.1"}}"""),
        (422, b'{"detail":[{"type":"extra_forbidden","loc":["body","top_k"],"msg":"Extra inputs are not permitted"}]}'),
        (422, b"{\"detail\":\"Unexpected fields in the request: {'top_k', 'min_p'}\"}"),
        (400, b'[{"error":{"code":400,"message":"Unknown name \\"top_k\\": Cannot find field."}}]'),
        (400, b'{"error":{"message":"Validation: Unsupported parameter(s): thinking","code":400}}'),
        (400, b'{"type":"error","error":{"message":"context_management: Extra inputs are not permitted"}}'),
        (400, b'{"error_code":"BAD_REQUEST","message":"Bad request: json: unknown field \\"metadata\\"\\n"}'),
        (422, b'{"message":"unknown field: parameter \'strict\' is not a valid field. For proper usage, ..."}'),
        (400, b'{"error":{"message":"Extra parameters [\'n\'] are not allowed when extra-parameters is not set"}}'),
    ],
)
async def test_a_field_that_its_provider_does_not_know_is_asked_of_the_next(status: int, body: bytes) -> None:
    async with ScriptedProvider(Raw((body,), status=status, headers=JSON)) as provider:
        with pytest.raises(Untranslatable, match="does not know a field") as caught:
            await ask(provider)
    assert caught.value.status == status


@pytest.mark.parametrize(
    ("status", "body"),
    [
        (400, b'{"error":{"code":"1210","message":"Invalid API parameter, please check the documentation."}}'),
        (400, b'{"code":20015,"message":"The parameter is invalid. Please check again.","data":null}'),
        (405, b'{"error":{"message":"Tool calling is not supported for model: the-model"}}'),
        (400, b'{"errors":[{"code":"json_validation_error","message":"tools[0].function.parameters: at ..."}]}'),
    ],
)
async def test_a_provider_that_says_little_of_what_is_wrong_is_not_the_last_that_is_asked(
    status: int, body: bytes
) -> None:
    """Z.ai says so of many tools, and others take them."""
    async with ScriptedProvider(Raw((body,), status=status, headers=JSON)) as provider:
        with pytest.raises(Untranslatable, match="does not support what was requested"):
            await ask(provider)


async def test_an_account_that_a_provider_names_is_not_told() -> None:
    """NVIDIA says so of a model that it no longer has."""
    said = "Function '23d4f03a-b8a6': Not found for account 'Qawmu2vUw3'"
    body = b'{"status":404,"title":"Not Found","detail":"%b"}' % said.encode()
    async with ScriptedProvider(Raw((body,), status=404, headers=JSON)) as provider:
        with pytest.raises(Untranslatable, match="does not know the model") as caught:
            await ask(provider)
    assert caught.value.body == b""


@pytest.mark.parametrize(
    ("status", "body"), [(404, b"<html>"), (404, b'{"detail":"Not Found"}'), (405, b""), (501, b"{}")]
)
async def test_an_address_with_nothing_there_is_no_fault_of_the_request(status: int, body: bytes) -> None:
    """It used to be reported as the caller's mistake, and no other model was tried."""
    async with ScriptedProvider(Raw((body,), status=status, headers=JSON)) as provider:
        with pytest.raises(Untranslatable, match="base_url in") as caught:
            await ask(provider)
    assert (caught.value.status, caught.value.body) == (404 if status == 501 else status, b"")


WHOLE = (
    b'{"id":"c","object":"chat.completion","created":1,"model":"m","choices":[{"index":0,"finish_reason":"stop",'
    b'"message":{"role":"assistant","content":"Hi"}}],"usage":{"prompt_tokens":9,"completion_tokens":2,"total_tokens":11}}'
)
PIECES = (
    b'data: {"choices":[{"index":0,"delta":{"content":"Hi"},"finish_reason":"stop"}]}\n\n',
    b'data: {"choices":[],"usage":{"prompt_tokens":9,"completion_tokens":2,"total_tokens":11}}\n\n',
    b"data: [DONE]\n\n",
)


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize(
    ("header", "charged"),
    [
        ({"cf-aig-cache-status": "HIT"}, 0),
        ({"Helicone-Cache": "HIT"}, 0),
        ({"x-portkey-cache-status": "SEMANTIC HIT"}, 0),
        ({"X-OpenRouter-Cache-Status": "HIT"}, 0),
        ({"cf-aig-cache-status": "MISS"}, None),
        ({}, None),
    ],
)
async def test_what_a_cache_on_the_way_had_kept_is_charged_by_nobody(
    header: dict[str, str], charged: int | None, *, stream: bool
) -> None:
    kind = {"content-type": "text/event-stream"} if stream else JSON
    body = b'{"model":"auto","stream":true}' if stream else b'{"model":"auto"}'
    call = Call("chat.completions", "the-model", body, stream, "r-1", Timeouts())
    async with (
        ScriptedProvider(Raw(PIECES if stream else (WHOLE,), headers=kind | header)) as provider,
        aclosing(OpenAICompatibleBackend("b", provider.base_url, None)) as backend,
    ):
        chunks = await read_stream.collect(backend, call)
    [usage] = [chunk.usage for chunk in chunks if chunk.usage is not None]
    assert usage == Usage(input_tokens=9, output_tokens=2, charged_pico_usd=charged)


async def test_nor_is_one_without_a_usage() -> None:
    call = Call("chat.completions", "the-model", b'{"model":"auto","stream":true}', True, "r-1", Timeouts())
    hit = Raw((PIECES[0], PIECES[2]), headers={"content-type": "text/event-stream", "cf-aig-cache-status": "HIT"})
    async with (
        ScriptedProvider(hit) as provider,
        aclosing(OpenAICompatibleBackend("b", provider.base_url, None)) as backend,
    ):
        chunks = await read_stream.collect(backend, call)
    assert chunks[-1].usage == Usage(charged_pico_usd=0)
    assert chunks[0].usage_so_far == Usage(charged_pico_usd=0, is_estimated=True), "nor if it is cut off"
