"""The engine's server as seen by clients: a child process, the unmodified openai client, and raw HTTP for edge
cases."""

import asyncio
import contextlib
import json
import re
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import openai
import psutil
import pytest

from tests.engine.conftest import DEVICE

pytestmark = [pytest.mark.engine, pytest.mark.integration]
UNSUPPORTED = "unsupported_parameter"
"""What another server may take: the gateway goes on to one."""
FRANCE = [{"role": "user", "content": "What is the capital of France?"}]
BLOCKS = 256
SLOTS = 4
"""How many requests run at once, and also how many may wait."""
PATIENCE_SECONDS = 600.0


@dataclass(frozen=True, slots=True)
class Served:
    process: subprocess.Popen[str]
    url: str
    lines: list[str]


def start(model_path: Path, *options: str) -> Served:
    """Starts a child on a free port; returns once it has printed its address, and keeps reading its output."""
    command = [sys.executable, "-m", "local_engine", "serve", "--model", str(model_path), "--port", "0", *options]
    if DEVICE != "cpu":
        command += ["--device", DEVICE, "--weights", "float32", "--kv-format", "float32"]
    process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
    assert process.stderr is not None
    lines: list[str] = []
    for line in process.stderr:
        lines.append(line)
        if line.startswith("Serving "):
            threading.Thread(target=lambda: lines.extend(process.stderr or ()), daemon=True).start()
            return Served(process, line.split()[-1], lines)
    raise AssertionError("".join(lines))


def stop(process: subprocess.Popen[str]) -> None:
    process.kill()
    process.wait()
    assert process.stderr is not None
    process.stderr.close()


@pytest.fixture(scope="module")
def served(model_path: Path) -> Iterator[Served]:
    child = start(
        model_path,
        "--kv-blocks",
        str(BLOCKS),
        "--context-window",
        "2048",
        "--max-waiting",
        str(SLOTS),
        "--max-concurrency",
        str(SLOTS),
        "--drain-seconds",
        str(PATIENCE_SECONDS),
    )
    yield child
    stop(child.process)


def post(served: Served, body: Any, path: str = "/v1/chat/completions") -> httpx.Response:
    content = body if isinstance(body, bytes) else json.dumps(body).encode()
    return httpx.post(served.url + path, content=content, timeout=PATIENCE_SECONDS)


def health(served: Served) -> dict[str, Any]:
    return httpx.get(served.url + "/health", timeout=PATIENCE_SECONDS).json()


async def until(client: httpx.AsyncClient, **numbers: int) -> dict[str, Any]:
    """The health once it shows these numbers; limited only by the test's timeout."""
    while not numbers.items() <= (state := (await client.get("/health")).json()).items():
        await asyncio.sleep(0.02)
    return state


def test_the_openai_client_gets_the_right_answer(served: Served) -> None:
    with openai.OpenAI(base_url=served.url + "/v1", api_key="none") as client:
        answer = client.chat.completions.create(model="any", messages=FRANCE, temperature=0)  # pyright: ignore[reportArgumentType]
        assert answer.choices[0].message.content == "The capital of France is Paris."
        assert answer.choices[0].finish_reason == "stop"
        assert answer.usage is not None
        assert answer.usage.completion_tokens == 8
        again = client.chat.completions.create(model="any", messages=FRANCE, temperature=0)  # pyright: ignore[reportArgumentType]
        assert again.usage is not None
        assert again.usage.prompt_tokens_details is not None
        assert again.usage.prompt_tokens_details.cached_tokens == answer.usage.prompt_tokens // 16 * 16
        assert [model.id for model in client.models.list()] == ["smollm2-135m-instruct"]


def test_a_stream_says_the_same_and_ends_with_its_accounts(served: Served) -> None:
    body = {"messages": FRANCE, "temperature": 0, "stream": True, "stream_options": {"include_usage": True}}
    lines = [line for line in post(served, body).text.split("\n\n") if line]
    assert lines[-1] == "data: [DONE]"
    chunks = [json.loads(line.removeprefix("data: ")) for line in lines[:-1]]
    text = "".join(chunk["choices"][0]["delta"].get("content", "") for chunk in chunks[:-1])
    assert text == "The capital of France is Paris."
    assert chunks[-2]["choices"][0]["finish_reason"] == "stop"
    assert chunks[-1]["choices"] == []
    assert chunks[-1]["usage"]["completion_tokens"] == 8
    accounts = chunks[-1]["x_breakeven"]
    assert accounts["gpu_seconds"] > 0
    assert accounts["queue_seconds"] >= 0
    assert accounts["mean_batch_size"] == 1.0
    assert accounts["decode_tokens_per_second"] > 0


def test_a_cache_salt_separates_tenants(served: Served) -> None:
    body = {"messages": [{"role": "user", "content": "Tell me of salt. " * 20}], "max_tokens": 1, "cache_salt": "a"}

    def cached(salt: str) -> int:
        answer = post(served, body | {"cache_salt": salt}).json()
        return int(answer["usage"]["prompt_tokens_details"]["cached_tokens"])

    assert cached("a") == 0
    assert cached("a") > 0
    assert cached("b") == 0


def test_a_seed_repeats_and_choices_differ(served: Served) -> None:
    body = {"messages": FRANCE, "seed": 5, "temperature": 1.5, "top_p": 0.95, "max_tokens": 12}
    # The first one fills the prefix cache, so that the next two are computed in the same pieces.
    texts = [post(served, body).json()["choices"][0]["message"]["content"] for _ in range(3)]
    assert texts[1] == texts[2]
    choices = post(served, body | {"n": 3}).json()["choices"]
    assert len({choice["message"]["content"] for choice in choices}) == 3


def test_stop_strings_end_the_answer_before_them(served: Served) -> None:
    answer = post(served, {"messages": FRANCE, "temperature": 0, "stop": [" is Par", "Berlin"]}).json()
    assert answer["choices"][0]["message"]["content"] == "The capital of France"
    assert answer["choices"][0]["finish_reason"] == "stop"
    assert answer["choices"][0]["stop_reason"] == " is Par"


def test_logprobs_and_logit_bias(served: Served) -> None:
    body = {"messages": FRANCE, "temperature": 0, "max_tokens": 1, "logprobs": True, "top_logprobs": 3}
    entry = post(served, body).json()["choices"][0]["logprobs"]["content"][0]
    assert len(entry["top_logprobs"]) == 3
    assert entry["top_logprobs"][0]["token"] == entry["token"] == "The"
    assert entry["logprob"] <= 0
    banned = post(served, body | {"logit_bias": {"504": -100}}).json()
    assert banned["choices"][0]["message"]["content"] != "The"


SCHEMA = {
    "type": "object",
    "properties": {"city": {"enum": ["Paris", "Berlin"]}, "rank": {"type": "integer", "minimum": 1, "maximum": 9}},
    "required": ["city", "rank"],
    "additionalProperties": False,
}
WEATHER = {"type": "function", "function": {"name": "weather", "parameters": SCHEMA}}


def test_a_json_schema_is_kept_at_any_temperature(served: Served) -> None:
    form = {"type": "json_schema", "json_schema": {"name": "capital", "schema": SCHEMA}}
    body = {"messages": FRANCE, "temperature": 1.5, "seed": 3, "max_tokens": 60, "response_format": form}
    choice = post(served, body).json()["choices"][0]
    value = json.loads(choice["message"]["content"])
    assert value["city"] in ("Paris", "Berlin")
    assert 1 <= value["rank"] <= 9
    assert choice["finish_reason"] == "stop"


def test_a_regular_expression_is_kept(served: Served) -> None:
    body = {
        "messages": FRANCE,
        "max_tokens": 30,
        "structured_outputs": {"regex": "[A-Z]{3}-[0-9]{4}"},
        "temperature": 1,
    }
    assert re.fullmatch("[A-Z]{3}-[0-9]{4}", post(served, body).json()["choices"][0]["message"]["content"])


@pytest.mark.parametrize(
    "schema", [{"type": "object", "properties": {"a": False}, "required": ["a"]}, {"type": "no such type"}]
)
def test_a_schema_that_cannot_be_satisfied_is_refused(served: Served, schema: dict[str, Any]) -> None:
    form = {"type": "json_schema", "json_schema": {"name": "x", "schema": schema}}
    answer = post(served, {"messages": FRANCE, "response_format": form})
    assert answer.status_code == 400
    assert answer.json()["error"]["param"] == "response_format"


@pytest.mark.parametrize("is_stream", [False, True])
def test_a_required_tool_is_called_with_arguments_of_its_schema(served: Served, is_stream: bool) -> None:
    with openai.OpenAI(base_url=served.url + "/v1", api_key="none") as client:
        request: dict[str, Any] = {"model": "any", "messages": FRANCE, "tools": [WEATHER], "tool_choice": "required"}
        if is_stream:
            chunks = list(client.chat.completions.create(**request, max_tokens=80, stream=True))
            deltas = [chunk.choices[0].delta for chunk in chunks]
            calls = [call.function for delta in deltas for call in delta.tool_calls or [] if call.function]
            names, arguments = [call.name for call in calls], "".join(call.arguments or "" for call in calls)
            assert len(calls) > 3, "a call comes in pieces"
            assert names[1:] == [None] * (len(names) - 1)
            finish, content = chunks[-1].choices[0].finish_reason, "".join(delta.content or "" for delta in deltas)
        else:
            choice = client.chat.completions.create(**request, max_tokens=80).choices[0]
            [call] = [call.function for call in choice.message.tool_calls or [] if call.type == "function"]
            names, arguments = [call.name], call.arguments
            finish, content = choice.finish_reason, choice.message.content or ""
    assert finish == "tool_calls"
    assert content == ""
    assert names[0] == "weather"
    assert json.loads(arguments)["city"] in ("Paris", "Berlin")


def test_completions_take_text_and_token_ids(served: Served) -> None:
    body = {"prompt": "1, 2, 3, 4,", "max_tokens": 4, "temperature": 0}
    answer = post(served, body, "/v1/completions").json()
    assert answer["object"] == "text_completion"
    assert answer["choices"][0]["text"] == " 5, "
    assert answer["choices"][0]["finish_reason"] == "length"


@pytest.mark.parametrize(
    ("body", "parameter", "code"),
    [
        (b"{", None, None),
        (b'"text"', None, None),
        (b"\xff\xfe", None, None),
        (b"[" * 100_000, None, None),
        ({}, "messages", None),
        ({"messages": []}, "messages", None),
        ({"messages": [{"content": "no role"}]}, "messages[0].role", None),
        ({"messages": [{"role": "wizard", "content": "x"}]}, "messages[0].role", None),
        ({"messages": [{"role": "user", "content": 7}]}, "messages[0].content", None),
        ({"messages": [{"role": "user", "content": [{"type": "image_url"}]}]}, "messages[0].content", UNSUPPORTED),
        ({"messages": FRANCE, "temperature": 3}, "temperature", None),
        ({"messages": FRANCE, "top_p": -0.1}, "top_p", None),
        ({"messages": FRANCE, "max_tokens": 0}, "max_tokens", None),
        ({"messages": FRANCE, "max_tokens": -5}, "max_tokens", None),
        ({"messages": FRANCE, "n": 100}, "n", UNSUPPORTED),
        ({"messages": FRANCE, "logit_bias": {"99999999": 1}}, "logit_bias", UNSUPPORTED),
        ({"messages": FRANCE, "stop": [""]}, "stop", None),
        ({"messages": FRANCE, "seed": 2**80}, "seed", None),
        ({"messages": [{"role": "user", "content": "word " * 100_000}]}, "messages", "context_length_exceeded"),
    ],
    ids=lambda value: str(value)[:40],
)
def test_bad_requests_are_told_what_is_wrong(
    served: Served, body: Any, parameter: str | None, code: str | None
) -> None:
    answer = post(served, body)
    assert answer.status_code == 400, answer.text
    error = answer.json()["error"]
    assert error["type"] == "invalid_request_error"
    assert error["param"] == parameter
    assert error["code"] == code
    assert error["message"]


def test_unknown_paths_and_models(served: Served) -> None:
    assert post(served, {"input": "x"}, "/v1/embeddings").json()["error"]["code"] == "model_not_found"
    with httpx.Client(base_url=served.url, timeout=PATIENCE_SECONDS) as client:
        assert client.get("/v1/models/other").json()["error"]["code"] == "model_not_found"
        assert client.get("/nothing").json()["error"]["message"]
        assert client.get("/v1/chat/completions").status_code == 405


async def test_a_client_that_leaves_frees_its_blocks(served: Served) -> None:
    async with httpx.AsyncClient(base_url=served.url, timeout=PATIENCE_SECONDS) as client:
        body = {"messages": FRANCE, "max_tokens": 1500, "stream": True, "logit_bias": {"2": -100}}
        async with client.stream("POST", "/v1/chat/completions", json=body) as answer:
            async for _ in answer.aiter_bytes():
                break
        await until(client, running=0, waiting=0)
        whole = asyncio.create_task(client.post("/v1/chat/completions", json=body | {"stream": False}))
        await until(client, running=1)
        whole.cancel()
        state = await until(client, running=0, waiting=0)
        assert state["kv_blocks_free"] == state["kv_blocks_total"] == BLOCKS
        metrics = (await client.get("/metrics")).text
    assert 'breakeven_engine_requests_total{finish_reason="cancelled"} 2.0' in metrics


async def test_a_full_queue_answers_429_and_everybody_else_is_served(served: Served) -> None:
    path, endless = "/v1/chat/completions", {"max_tokens": 900, "stream": True, "logit_bias": {"0": -100, "2": -100}}
    body = {"messages": FRANCE, "max_tokens": 8, "temperature": 0}
    async with httpx.AsyncClient(base_url=served.url, timeout=PATIENCE_SECONDS) as client:
        async with contextlib.AsyncExitStack() as running:
            for _ in range(SLOTS):
                await running.enter_async_context(client.stream("POST", path, json=body | endless))
            await until(client, running=SLOTS)
            waiting = [asyncio.create_task(client.post(path, json=body)) for _ in range(SLOTS)]
            await until(client, running=SLOTS, waiting=SLOTS)
            refused = await asyncio.gather(*(client.post(path, json=body) for _ in range(6)))
        answers = await asyncio.gather(*waiting)
        await until(client, running=0, waiting=0)
    assert {answer.status_code for answer in refused} == {429}
    assert all(int(answer.headers["retry-after"]) >= 1 for answer in refused)
    assert {answer.json()["choices"][0]["message"]["content"] for answer in answers} == {
        "The capital of France is Paris."
    }


async def test_more_answers_than_the_engine_ever_takes_are_refused_by_the_field_that_asks_for_them(
    served: Served,
) -> None:
    async with httpx.AsyncClient(base_url=served.url, timeout=PATIENCE_SECONDS) as client:
        for prompts, choices, field in ((2 * SLOTS + 1, 1, "prompt"), (1, 2 * SLOTS + 1, "n")):
            body = {"prompt": ["The capital"] * prompts, "n": choices}
            answer = await client.post("/v1/completions", json=body)
            error = answer.json()["error"]
            assert (answer.status_code, error["param"]) == (400, field)
            assert f"takes {2 * SLOTS} answers at a time, not {2 * SLOTS + 1}; send fewer" in error["message"]


def test_a_taken_port_is_one_clear_sentence(served: Served, model_path: Path) -> None:
    port = served.url.rpartition(":")[2]
    command = [sys.executable, "-m", "local_engine", "serve", "--model", str(model_path), "--port", port]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=PATIENCE_SECONDS)
    assert done.returncode == 1
    assert f"error: Cannot listen on 127.0.0.1:{port}" in done.stderr


def test_an_orphan_stops_by_itself(model_path: Path, tmp_path: Path) -> None:
    """It must not outlive its parent, even if that is killed."""
    script = (
        "import subprocess, sys, time\n"
        f"child = subprocess.Popen([sys.executable, '-m', 'local_engine', 'serve', '--model', {str(model_path)!r},\n"
        "    '--port', '0', '--kv-blocks', '8', '--context-window', '64', '--exit-with-parent'],\n"
        "    stderr=open(sys.argv[1], 'w'))\n"
        "print(child.pid, flush=True)\n"
        "time.sleep(600)\n"
    )
    log = tmp_path / "log"
    parent = subprocess.Popen([sys.executable, "-c", script, str(log)], stdout=subprocess.PIPE, text=True)
    assert parent.stdout is not None
    child_pid = int(parent.stdout.readline())
    while not (log.exists() and "Serving" in log.read_text()):
        assert parent.poll() is None
        time.sleep(0.05)
    parent.kill()
    parent.wait()
    parent.stdout.close()
    with contextlib.suppress(psutil.NoSuchProcess):
        while psutil.Process(child_pid).status() != psutil.STATUS_ZOMBIE:
            time.sleep(0.05)


async def test_sigterm_finishes_what_runs_and_refuses_the_rest(served: Served) -> None:
    """The last test with this server."""
    async with httpx.AsyncClient(base_url=served.url, timeout=PATIENCE_SECONDS) as client:
        # Long enough to be still running when the test, possibly delayed, asks for the health.
        body = {"messages": FRANCE, "max_tokens": 200, "stream": True, "logit_bias": {"0": -100, "2": -100}}
        async with client.stream("POST", "/v1/chat/completions", json=body) as answer:
            parts = answer.aiter_text()
            text = await anext(parts)
            served.process.send_signal(signal.SIGTERM)
            while (await client.get("/health")).json()["status"] != "draining":
                await asyncio.sleep(0.01)
            refused = await client.post("/v1/chat/completions", json=body)
            async for part in parts:
                text += part
    assert refused.status_code == 503
    assert refused.headers["retry-after"]
    assert text.endswith("data: [DONE]\n\n")
    assert served.process.wait(timeout=PATIENCE_SECONDS) == 0
