"""Faults that only real connections have, through the whole gateway: sockets on both sides, real adapters."""

import asyncio
import gzip
import json
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Any

import httpx
import pytest

from backends.key_pool import KeyPool, PooledKey
from backends.openai_compatible import OpenAICompatibleBackend
from backends.protocol import Backend, Timeouts
from backends.scripted import Fault, Outcome
from gateway.ledger.entry import Status
from gateway.process.patient_protocol import patient_protocol
from tests.builders import make_snapshot
from tests.faults.upstream.service import build_app
from tests.live_server import serving
from tests.ports import refusing_port
from tests.rig import KEY, A, Rig
from tests.scripted_provider import Raw, ScriptedProvider
from tests.scripted_provider.malformed import Variant, variants
from tests.waiting import until

pytestmark = pytest.mark.faults
PATIENCE_SECONDS = 60
VARIANTS = list(variants())


@asynccontextmanager
async def gateway(one: Backend, two: Backend | None = None, **changes: Any) -> AsyncGenerator[tuple[Rig, str]]:
    """A rig over real adapters behind a real socket; model a lives at `one`, b at `two`."""
    rig = Rig(**changes)
    rig.pipeline.backends = {"one": one} if two is None else {"one": one, "two": two}
    if two is None:
        rig.pipeline.snapshot = make_snapshot(candidates=[A])
    async with serving(build_app(rig.pipeline), http=patient_protocol(PATIENCE_SECONDS)) as url:
        yield rig, url
    await one.aclose()
    if two is not None:
        await two.aclose()


def adapter(name: str, provider: ScriptedProvider, key: str | None = None) -> OpenAICompatibleBackend:
    return OpenAICompatibleBackend(name, provider.base_url, key)


def ask(url: str, *, stream: bool, prompt: str = "hello") -> httpx.Request:
    body = {"model": "auto", "messages": [{"role": "user", "content": prompt}], "stream": stream}
    headers = {"authorization": f"Bearer {KEY}"}
    return httpx.Request("POST", f"{url}/v1/chat/completions", json=body, headers=headers)


async def post(url: str, *, stream: bool = True) -> httpx.Response:
    async with httpx.AsyncClient(timeout=PATIENCE_SECONDS) as client:
        return await client.send(ask(url, stream=stream))


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("kind", ["reset", "unreachable", "silent", "unavailable", "overloaded", "rate_limited"])
async def test_before_the_first_chunk_another_upstream_answers_in_one_row(kind: Fault, stream: bool) -> None:
    async with ScriptedProvider(Outcome(fault=kind)) as bad, ScriptedProvider() as good:
        with refusing_port() as refusing:
            address = f"http://127.0.0.1:{refusing}/v1" if kind == "unreachable" else bad.base_url
            one = OpenAICompatibleBackend("one", address, None)
            async with gateway(one, adapter("two", good), timeouts={"one": Timeouts(5.0, 0.2, 0.2)}) as (rig, url):
                answer = await post(url, stream=stream)
        assert answer.status_code == 200
        assert answer.headers["x-breakeven-model"] == "b"
        assert not stream or answer.text.endswith("data: [DONE]\n\n")
        assert rig.entry.status is Status.completed
        assert [attempt.model for attempt in rig.entry.attempts] == ["a", "b"]
        assert len(good.received) == 1


async def test_a_connection_that_is_cut_before_any_answer_may_be_billed() -> None:
    """As by a load balancer that allows no call longer than a minute: the provider may have worked the whole time."""

    async def cuts(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"}]")
        writer.close()

    balancer = await asyncio.start_server(cuts, "127.0.0.1", 0)
    one = OpenAICompatibleBackend("one", f"http://127.0.0.1:{balancer.sockets[0].getsockname()[1]}/v1", None)
    async with balancer, ScriptedProvider() as good, gateway(one, adapter("two", good)) as (rig, url):
        assert (await post(url, stream=False)).status_code == 200
    entry, [cut, _] = rig.entry, rig.entry.attempts
    assert cut.outcome == "UpstreamUnavailable"
    assert entry.cost is not None
    assert cut.cost_pico_usd is not None
    assert cut.cost_pico_usd == entry.cost.other_pico_usd > 0, "its prompt"
    assert entry.is_usage_estimated
    assert entry.cost_lower_pico_usd == entry.cost.total_pico_usd - cut.cost_pico_usd


@pytest.mark.parametrize("kind", ["reset", "stalled", "truncated", "error_event", "garbage"])
async def test_after_the_first_chunk_the_caller_is_told_and_nothing_runs_again(kind: Fault) -> None:
    async with ScriptedProvider(Outcome(fault=kind, fault_after_pieces=2)) as bad, ScriptedProvider() as good:
        short = {"one": Timeouts(5.0, PATIENCE_SECONDS, 0.3)}
        async with gateway(adapter("one", bad), adapter("two", good), timeouts=short) as (rig, url):
            answer = await post(url)
            assert answer.status_code == 200
            assert "[DONE]" not in answer.text
            assert json.loads(answer.text.rpartition("data: ")[2])["error"]["code"] == "stream_broken"
            assert rig.entry.status is Status.partial
            assert rig.entry.is_usage_estimated
            assert rig.entry.output_tokens > 0
            assert (len(bad.received), len(good.received)) == (1, 0)


@pytest.mark.parametrize("variant", VARIANTS, ids=[variant.name for variant in VARIANTS])
async def test_malformed_streams_end_in_their_status_at_the_caller_and_in_the_books(variant: Variant) -> None:
    async with (
        ScriptedProvider(Raw(variant.pieces)) as provider,
        gateway(adapter("one", provider)) as (rig, url),
    ):
        answer = await post(url)
        entry = rig.entry
        if variant.end == "refused":
            assert (answer.status_code, entry.status) == (502, Status.failed)
            assert answer.json()["error"]["code"] == "upstream_failed"
            assert (entry.input_tokens, entry.output_tokens) == (0, 0)
            return
        assert answer.status_code == 200
        is_whole = variant.end == "completed"
        assert entry.status is (Status.completed if is_whole else Status.partial)
        assert answer.text.endswith("data: [DONE]\n\n") is is_whole
        assert ('"stream_broken"' in answer.text) is not is_whole
        assert entry.is_usage_estimated is not variant.has_usage
        assert entry.output_tokens > 0


async def test_a_refused_key_hands_over_to_the_next_key_and_rests() -> None:
    refusals = [Outcome(fault="auth"), Outcome(fault="rate_limited", retry_after_seconds=30.0)]
    async with ScriptedProvider(*refusals, Outcome()) as provider:
        keys = [PooledKey(f"KEY_{n}", adapter("one", provider, f"sk-{n}")) for n in (1, 2, 3)]
        pool = KeyPool("one", keys)
        async with gateway(pool) as (rig, url):
            rig.pipeline.upstreams.shelves = {"one": pool}
            answers = [await post(url, stream=stream) for stream in (True, False, True)]
            assert [answer.status_code for answer in answers] == [200, 200, 200]
            used = [request.headers["Authorization"].removeprefix("Bearer ") for request in provider.received]
            assert len(set(used[:3])) == 3, "each key once"
            assert used[3:] == [used[2]] * 2, "the refused ones rest"
            first = rig.ledger.entries[0]
            assert [attempt.outcome for attempt in first.attempts] == ["UpstreamAuth", "RateLimited", "answered"]
            assert not any("sk-" in repr(entry) for entry in rig.ledger.entries)


async def test_a_key_that_is_revoked_is_asked_once_and_the_next_callers_hear_why() -> None:
    """They used to be told that the backend is down."""
    async with (
        ScriptedProvider(Outcome(), Outcome(fault="auth")) as provider,
        gateway(adapter("one", provider)) as (rig, url),
    ):
        answers = [await post(url, stream=False) for _ in range(4)]
        assert [answer.status_code for answer in answers] == [200, 502, 503, 503]
        assert len(provider.received) == 2
        assert "its provider refuses our key, see `breakeven doctor`" in answers[-1].json()["error"]["message"]
        [warning] = rig.pipeline.upstreams.warnings(rig.pipeline.monotonic())
        assert warning.startswith("one refuses our key for ")


@pytest.mark.parametrize("drains", [False, True], ids=["cancel", "drain"])
async def test_a_caller_that_hangs_up_closes_the_upstream_or_lets_it_finish(drains: bool) -> None:
    slow = Outcome(pieces=("Hello",) * 5, piece_delay_seconds=0.1 if drains else 30.0)
    async with ScriptedProvider(slow) as provider:
        kept = frozenset({"one"}) if drains else frozenset[str]()
        async with gateway(adapter("one", provider), drains=kept) as (rig, url):
            async with httpx.AsyncClient(timeout=PATIENCE_SECONDS) as client:
                answer = await client.send(ask(url, stream=True), stream=True)
                await anext(answer.aiter_bytes())
                await answer.aclose()
            await until(lambda: rig.ledger.entries)
            assert rig.entry.status is Status.cancelled
            assert rig.entry.is_usage_estimated is not drains
            if drains:
                assert rig.entry.output_tokens == 4, "the provider's usage"
            else:
                await until(lambda: provider.cut_by_client == 1)


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("characters", [5, 300_000])
async def test_who_hangs_up_before_the_first_token_is_noticed_however_long_the_prompt(
    stream: bool, characters: int
) -> None:
    """A long prompt arrived while reading was paused, and reading never resumed: the answer was paid for although its
    caller had left."""
    silent = Outcome(first_piece_delay_seconds=4 * PATIENCE_SECONDS)
    async with ScriptedProvider(silent) as provider, gateway(adapter("one", provider)) as (rig, url):
        request = ask(url, stream=stream, prompt="x" * characters)
        host, port = request.url.host, request.url.port
        _, writer = await asyncio.open_connection(host, port)
        head = f"POST {request.url.path} HTTP/1.1\r\nhost: x\r\nauthorization: Bearer {KEY}\r\n"
        writer.write(f"{head}content-length: {len(request.content)}\r\n\r\n".encode() + request.content)
        await until(lambda: provider.received)
        writer.close()
        await until(lambda: rig.ledger.entries)
        assert rig.entry.status is Status.cancelled
        await until(lambda: provider.cut_by_client == 1)


async def test_a_body_that_never_ends_is_cut_at_the_limit_and_a_compressed_one_is_refused() -> None:
    async with ScriptedProvider() as provider, gateway(adapter("one", provider)) as (rig, url):
        headers = {"authorization": f"Bearer {KEY}"}

        async def endless() -> AsyncGenerator[bytes]:
            yield b'{"model": "auto", "messages": [{"role": "user", "content": "'
            for _ in range(3):
                yield b"x" * 500_000

        async with httpx.AsyncClient(timeout=PATIENCE_SECONDS) as client:
            path = f"{url}/v1/chat/completions"
            too_long = await client.post(path, content=endless(), headers=headers)
            assert too_long.status_code == 413
            for encoding, status in (("gzip", 413), ("br", 415)):
                packed = gzip.compress(b"x" * 1_500_000)
                refused = await client.post(path, content=packed, headers=headers | {"content-encoding": encoding})
                assert refused.status_code == status
        assert not rig.ledger.entries
        assert not provider.received
