"""If our engine would answer, a count equals the prompt tokens charged for the answer, whatever the request's
format."""

import json
from collections.abc import AsyncGenerator
from dataclasses import dataclass
from typing import Any

import httpx
import pytest

from backends.dialects import dialect_of_engine
from backends.openai_compatible import OpenAICompatibleBackend
from backends.translating import TranslatingBackend
from gateway.api.other_addresses import OtherAddresses
from local_engine.assembly import Engine, assemble
from local_engine.config import EngineConfig
from local_engine.loading.safetensors_loader import load_safetensors
from local_engine.server.openai_server import build_app
from tests.integration.service import Service
from tests.live_server import serving
from tests.ports import refusing_port
from tests.rig import KEY, Rig
from tests.unit.local_engine.tiny_models import make_model, write_folder

pytestmark = pytest.mark.integration
TEMPLATE = (
    "{% if tools %}{{ tools | tojson }}{% endif %}"
    "{% for m in messages %}{% if m.role == 'tool' and not m.content %}{{ raise_exception('empty') }}{% endif %}"
    "<{{ m.role }}>{{ m.content or '' }}{{ (m.tool_calls or '') | string }}{% endfor %}"
    "{% if add_generation_prompt %}<assistant>{% endif %}"
)
SCHEMA = {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}
SAID = "Ask the weather in Bern, naïve as it is."

MESSAGES: dict[str, dict[str, Any]] = {
    "a text": {"messages": [{"role": "user", "content": SAID}]},
    "a tool and what it said": {
        "system": "Be brief.",
        "tools": [{"name": "weather", "description": "Tells it.", "input_schema": SCHEMA}],
        "messages": [
            {"role": "user", "content": [{"type": "text", "text": SAID}]},
            {
                "role": "assistant",
                "content": [{"type": "tool_use", "id": "toolu_1", "name": "weather", "input": {"city": "Bern"}}],
            },
            {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "toolu_1", "content": "Rain."}]},
        ],
    },
    "no tool, though there is one": {
        "tools": [{"name": "weather", "input_schema": SCHEMA}],
        "tool_choice": {"type": "none"},
        "messages": [{"role": "user", "content": SAID}],
    },
    "a beginning": {"messages": [{"role": "user", "content": SAID}, {"role": "assistant", "content": "It is"}]},
}
RESPONSES: dict[str, dict[str, Any]] = {
    "a text": {"input": SAID},
    "a tool and what it said": {
        "instructions": "Be brief.",
        "tools": [{"type": "function", "name": "weather", "description": "Tells it.", "parameters": SCHEMA}],
        "input": [
            {"role": "user", "content": [{"type": "input_text", "text": SAID}]},
            {"type": "function_call", "call_id": "call_1", "name": "weather", "arguments": '{"city": "Bern"}'},
            {"type": "function_call_output", "call_id": "call_1", "output": "Rain."},
        ],
    },
}
CONTENTS: dict[str, dict[str, Any]] = {
    "a text": {"contents": [{"role": "user", "parts": [{"text": SAID}]}]},
    "a tool": {
        "systemInstruction": {"parts": [{"text": "Be brief."}]},
        "contents": [{"role": "user", "parts": [{"text": SAID}]}],
        "tools": [{"functionDeclarations": [{"name": "weather", "parametersJsonSchema": SCHEMA}]}],
    },
}


@dataclass(frozen=True, slots=True)
class Gateway:
    client: httpx.AsyncClient
    rig: Rig

    async def post(self, path: str, body: dict[str, Any], status: int = 200) -> httpx.Response:
        answer = await self.client.post(path, json=body)
        assert answer.status_code == status, answer.text
        return answer

    async def count(self, path: str, body: dict[str, Any]) -> tuple[str, int]:
        answer = await self.post(path, body)
        said = answer.json()
        return answer.headers["x-breakeven-count"], said.get("input_tokens", said.get("totalTokens"))


@pytest.fixture(scope="module")
def engine(tmp_path_factory: pytest.TempPathFactory) -> Engine:
    model = make_model("qwen2")
    model.config.max_position_embeddings = 1024
    folder = write_folder(model, tmp_path_factory.mktemp("model"))
    (folder / "tokenizer_config.json").write_text(json.dumps({"chat_template": TEMPLATE}))
    config = EngineConfig(kv_blocks=96, context_window=1024, max_running_requests=2, max_waiting_requests=2)
    return assemble(load_safetensors(folder), config)


@pytest.fixture
async def gateway(engine: Engine) -> AsyncGenerator[Gateway]:
    running = engine.serve()
    running.start()
    async with serving(build_app(running, engine, model_name="tiny")) as url:
        async for made in behind(url):
            yield made
    await running.stop()


async def behind(engine_url: str) -> AsyncGenerator[Gateway]:
    backend = OpenAICompatibleBackend("one", f"{engine_url}/v1", None, health_from="engine")
    rig = Rig()
    translating = TranslatingBackend(backend, dialect=dialect_of_engine("local"))
    rig.pipeline.backends = {"one": translating, "two": TranslatingBackend(rig.two)}
    headers = {"authorization": f"Bearer {KEY}"}
    async with (
        serving(OtherAddresses(Service(rig).app)) as url,
        httpx.AsyncClient(base_url=url, headers=headers, timeout=300) as client,
    ):
        yield Gateway(client, rig)
    await backend.aclose()


@pytest.mark.parametrize("name", MESSAGES)
async def test_a_message(gateway: Gateway, name: str) -> None:
    asked = {"model": "a", **MESSAGES[name]}
    counted = await gateway.count("/v1/messages/count_tokens", asked)
    assert not gateway.rig.ledger.entries, "counting is free"
    answer = (await gateway.post("/v1/messages", {**asked, "max_tokens": 4})).json()
    usage = answer["usage"]  # in Anthropic's format, input excludes cached tokens
    assert counted == ("a", usage["input_tokens"] + usage["cache_read_input_tokens"])


@pytest.mark.parametrize("name", RESPONSES)
async def test_a_response(gateway: Gateway, name: str) -> None:
    asked = {"model": "a", **RESPONSES[name]}
    counted = await gateway.count("/v1/responses/input_tokens", asked)
    answer = (await gateway.post("/v1/responses", {**asked, "max_output_tokens": 16, "store": False})).json()
    assert counted == ("a", answer["usage"]["input_tokens"])


@pytest.mark.parametrize("name", CONTENTS)
async def test_contents(gateway: Gateway, name: str) -> None:
    asked = {**CONTENTS[name], "generationConfig": {"maxOutputTokens": 4}}
    whole = {"generateContentRequest": {"model": "models/a", **asked}}
    counted = await gateway.count("/v1beta/models/a:countTokens", whole)
    answer = (await gateway.post("/v1beta/models/a:generateContent", asked)).json()
    assert counted == ("a", answer["usageMetadata"]["promptTokenCount"])


async def test_a_chat_costs_what_is_counted(gateway: Gateway) -> None:
    messages = MESSAGES["a text"]["messages"]
    chat = (await gateway.post("/v1/chat/completions", {"model": "a", "messages": messages, "max_tokens": 4})).json()
    counted = await gateway.count("/v1/messages/count_tokens", {"model": "a", "messages": messages})
    assert counted == ("a", chat["usage"]["prompt_tokens"])


async def test_what_the_engine_refuses_is_refused_as_the_answer_would_be(gateway: Gateway) -> None:
    called = MESSAGES["a tool and what it said"]["messages"]
    silent = {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "toolu_1", "content": ""}]}
    asked = {"model": "a", "messages": [*called[:2], silent]}
    counted = await gateway.post("/v1/messages/count_tokens", asked, 400)
    answered = await gateway.post("/v1/messages", {**asked, "max_tokens": 4}, 400)
    assert counted.json()["type"] == "error"
    assert counted.json()["error"] == answered.json()["error"]


async def test_what_no_chat_says_or_is_not_there_to_count_is_estimated() -> None:
    with refusing_port() as port:
        async for gateway in behind(f"http://127.0.0.1:{port}"):
            who, count = await gateway.count("/v1/messages/count_tokens", {"model": "a", **MESSAGES["a text"]})
            assert (who, count > 0) == ("estimate", True)
