"""Slow work is done in other threads, while other requests are answered."""

import asyncio
import threading
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Any, cast

import httpx
import pytest

from local_engine.assembly import Engine
from local_engine.async_engine import AsyncEngine
from local_engine.encoder import Embedded
from local_engine.sampling.constraints import ConstraintCompiler
from local_engine.sampling.sampling_params import Constraint
from local_engine.server.long_bodies import AT_ONCE, are_unfinished
from local_engine.server.openai_server import build_app
from local_engine.text.tokenizer import Tokenizer
from tests.unit.local_engine.asking import HI, TEXT, VOCABULARY, chat, client_of, served
from tests.unit.local_engine.tiny_models import byte_level


class WatchedTokenizer(Tokenizer):
    """Records which threads convert tokens to text."""

    def __init__(self) -> None:
        super().__init__(byte_level(), chat_template=None, bos_token_id=None, eos_token_ids=[])
        self.threads: set[int] = set()

    def encode_chat(self, *given: Any, **more: Any) -> list[int]:
        self.threads.add(threading.get_ident())
        return super().encode_chat(*given, **more)

    def bytes_of(self, token_id: int, *, skips_special: bool = True) -> bytes:
        self.threads.add(threading.get_ident())
        return super().bytes_of(token_id, skips_special=skips_special)


async def test_ids_are_written_as_text_for_whoever_echoes_them(engine: Engine) -> None:
    """Twelve million ids took a minute, and were then rejected as too many."""
    watched = WatchedTokenizer()
    app = build_app(engine.serve(), replace(engine, tokenizer=watched), model_name="tiny")
    async with client_of(app) as client:
        refused = await client.post("/v1/completions", json=TEXT | {"prompt": [5] * 1000})
        assert refused.json()["error"]["code"] == "context_length_exceeded"
    assert not watched.threads


async def test_a_prompt_that_has_no_room_however_it_is_cut_is_refused_uncut(client: httpx.AsyncClient) -> None:
    long = "x" * 100_000
    chat = {"messages": [{"role": "user", "content": long}], "max_tokens": 1}
    for path, body in (("/v1/chat/completions", chat), ("/v1/completions", TEXT | {"prompt": ["hi", long]})):
        error = (await client.post(path, json=body)).json()["error"]
        assert error["code"] == "context_length_exceeded"
        assert "has at least" in error["message"]
        assert (await client.post(path, json=body | {"truncate_prompt_tokens": 5})).status_code == 200
    assert (await client.post("/tokenize", json=chat)).json()["count"] > 100_000


@pytest.mark.parametrize("path", ["/v1/chat/completions", "/tokenize"])
async def test_a_template_is_rendered_while_others_are_answered(engine: Engine, path: str) -> None:
    """An endless one used to block everything, even the health check."""
    watched = WatchedTokenizer()
    async with served(engine, tokenizer=watched) as (_, client):
        assert (await client.post(path, json=HI | {"max_tokens": 1})).status_code == 200
    assert threading.get_ident() not in watched.threads


@pytest.mark.parametrize("asked", [{"prompt_logprobs": 5}, {"logprobs": 5, "echo": True}])
async def test_log_probabilities_are_written_while_others_are_answered(engine: Engine, asked: dict[str, Any]) -> None:
    """Writing those of a long prompt takes a second."""
    watched = WatchedTokenizer()
    async with served(engine, tokenizer=watched) as (_, client):
        body = TEXT | {"max_tokens": 0} | asked
        assert (await client.post("/v1/completions", json=body)).status_code == 200
        if "echo" in asked:
            assert (await client.post("/v1/completions", json=body | {"stream": True})).text.endswith("[DONE]\n\n")
    assert watched.threads
    assert threading.get_ident() not in watched.threads


class HeldConstraints(ConstraintCompiler):
    """Waits before it compiles until it is told to go on."""

    def __init__(self, tokenizer: Tokenizer) -> None:
        super().__init__(tokenizer, VOCABULARY)
        self.has_begun, self.may_go_on = threading.Event(), threading.Event()

    def check(self, constraint: Constraint) -> None:
        self.has_begun.set()
        assert self.may_go_on.wait(60), "whoever would let it go on waits for it"
        super().check(constraint)


async def test_a_constraint_is_compiled_while_others_are_answered(engine: Engine) -> None:
    held = HeldConstraints(engine.tokenizer)
    async with served(engine, constraints=held) as (_, client):
        asked = asyncio.create_task(client.post("/v1/completions", json=TEXT | {"guided_regex": "("}))
        assert await asyncio.to_thread(held.has_begun.wait, 60)
        assert (await chat(client))["choices"][0]["message"]["content"]
        held.may_go_on.set()
        assert (await asked).json()["error"]["param"] == "structured_outputs"


LONG_REGEX: dict[str, Any] = TEXT | {"guided_regex": "a" * 20_000}


async def test_a_drain_waits_for_no_constraint_that_is_compiled(engine: Engine) -> None:
    """It used to take as long as the compilation, and waiting clients got a 500 in plain text."""
    held = HeldConstraints(engine.tokenizer)
    async with served(engine, constraints=held) as (running, client):
        asked = [asyncio.create_task(client.post("/v1/completions", json=LONG_REGEX)) for _ in range(AT_ONCE + 2)]
        assert await asyncio.to_thread(held.has_begun.wait, 60)
        assert await running.drain(60)
        answers = await asyncio.wait_for(asyncio.gather(*asked), 60)
        assert {answer.json()["error"]["code"] for answer in answers} == {"engine_draining"}
        held.may_go_on.set()


async def test_answers_are_written_while_many_long_constraints_are_compiled(engine: Engine) -> None:
    """asyncio has at most 32 threads, and writing log-probabilities needs one."""
    held = HeldConstraints(engine.tokenizer)
    async with served(engine, constraints=held) as (_, client):
        asked = [asyncio.create_task(client.post("/v1/completions", json=LONG_REGEX)) for _ in range(33)]
        while not held.has_begun.is_set():
            await asyncio.sleep(0.001)
        body = TEXT | {"max_tokens": 0, "echo": True, "logprobs": 1}
        answer = await asyncio.wait_for(client.post("/v1/completions", json=body), 300)
        assert answer.status_code == 200
        held.may_go_on.set()
        for task in asked:
            task.cancel()
        await asyncio.gather(*asked, return_exceptions=True)


class HeldTokenizer(Tokenizer):
    """Waits within a text until it is told to go on."""

    def __init__(self) -> None:
        super().__init__(byte_level(), chat_template=None, bos_token_id=None, eos_token_ids=[])
        self.has_begun, self.may_go_on = threading.Event(), threading.Event()

    def encode(self, text: str, *, with_bos: bool = True) -> list[int]:
        self.has_begun.set()
        assert self.may_go_on.wait(60), "whoever would let it go on waits for it"
        return super().encode(text, with_bos=with_bos)


async def test_a_drain_waits_for_no_prompt_that_is_cut_into_tokens(engine: Engine) -> None:
    """Sixteen megabytes take long; neither texts in progress nor those queued delay the end."""
    held = HeldTokenizer()
    async with served(engine, tokenizer=held) as (running, client):
        body = TEXT | {"prompt": " " * 100_000}
        asked = [asyncio.create_task(client.post("/v1/completions", json=body)) for _ in range(AT_ONCE + 2)]
        assert await asyncio.to_thread(held.has_begun.wait, 60)
        assert await running.drain(60)
        answers = await asyncio.wait_for(asyncio.gather(*asked), 60)
        assert {answer.json()["error"]["code"] for answer in answers} == {"engine_draining"}
        assert {answer.status_code for answer in answers} == {503}
        assert are_unfinished()
        held.may_go_on.set()


async def test_a_long_prompt_is_cut_into_tokens_while_others_are_answered(engine: Engine) -> None:
    held = HeldTokenizer()
    async with served(engine, tokenizer=held) as (_, client):
        long = asyncio.create_task(client.post("/v1/completions", json=TEXT | {"prompt": " " * 100_000}))
        assert await asyncio.to_thread(held.has_begun.wait, 60)
        assert (await client.get("/health")).status_code == 200
        assert (await chat(client))["choices"][0]["message"]["content"]
        held.may_go_on.set()
        assert (await long).json()["error"]["code"] == "context_length_exceeded"


class HeldEncoder:
    """Waits within a text until it is told to go on."""

    name, dimensions, context_window = "held", 1, 9

    def __init__(self) -> None:
        self.has_begun, self.may_go_on = threading.Event(), threading.Event()

    def encode(self, texts: list[str], first: int | None = None) -> Embedded:
        del first
        self.has_begun.set()
        assert self.may_go_on.wait(60), "whoever would let it go on waits for it"
        return Embedded([[1.0]] * len(texts), 1)


Embeddings = list[asyncio.Task[httpx.Response]]


@asynccontextmanager
async def embedding(
    engine: Engine, held: HeldEncoder, texts: int
) -> AsyncGenerator[tuple[AsyncEngine, httpx.AsyncClient, Embeddings]]:
    """A server at work on so many requests for embeddings."""
    running = engine.serve()
    running.start()
    async with client_of(build_app(running, engine, model_name="tiny", encoder=cast("Any", held))) as client:
        asked = [asyncio.create_task(client.post("/v1/embeddings", json={"input": "x"})) for _ in range(texts)]
        while not held.has_begun.is_set():
            await asyncio.sleep(0.001)
        yield running, client, asked
        held.may_go_on.set()
    await running.stop()


async def test_who_embeds_delays_nobody_else_and_is_cut_off_by_the_drain_limit(engine: Engine) -> None:
    """Requests for embeddings took all of asyncio's threads, and SIGTERM waited for the last of them."""
    async with embedding(engine, HeldEncoder(), 33) as (running, client, asked):
        constrained = client.post("/v1/completions", json=TEXT | {"guided_regex": "a+"})
        assert (await asyncio.wait_for(constrained, 300)).status_code == 200
        assert not await running.drain(0.01)
        running.abandon("The engine was stopped.")
        answers = await asyncio.wait_for(asyncio.gather(*asked), 300)
        assert {answer.status_code for answer in answers} == {503}
        assert await running.drain(30)


async def test_a_drain_waits_for_embeddings_and_lets_none_begin(engine: Engine) -> None:
    held = HeldEncoder()
    async with embedding(engine, held, 1) as (running, client, asked):
        draining = asyncio.create_task(running.drain(30))
        await asyncio.sleep(0)
        assert (await client.post("/v1/embeddings", json={"input": "x"})).status_code == 503
        assert not draining.done()
        held.may_go_on.set()
        assert (await asked[0]).status_code == 200
        assert await draining
