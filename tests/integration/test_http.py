"""The HTTP API over a real socket, with the official OpenAI client and with bytes that no client would send."""

import asyncio
import gc
import gzip
import json
from typing import Any

import anthropic
import httpx
import openai
import pytest

from backends.scripted import Outcome, follow
from gateway.ledger.entry import Status
from gateway.limits.values import parse_limits
from tests.builders import make_snapshot
from tests.integration.service import MESSAGES, Service, client_of
from tests.rig import KEY
from tests.waiting import until

pytestmark = pytest.mark.integration
ROUTED = """version: 1
rules:
  - {name: named, when: {model: [gpt-4o]}, choose: {from: any}}
  - {name: default, choose: {from: any}}
"""
HEADERS = {"authorization": f"Bearer {KEY}"}


async def test_the_official_client_chats(service: Service) -> None:
    async with service.client() as client:
        raw = await client.chat.completions.with_raw_response.create(model="auto", messages=MESSAGES)
        answer = raw.parse()
    assert answer.choices[0].message.content == "Hello, world."
    assert answer.usage is not None
    assert answer.usage.total_tokens == 16
    assert raw.headers["x-breakeven-model"] == "a"
    assert raw.headers["x-breakeven-cost-usd"] == "0.000028"
    assert int(raw.headers["content-length"]) == len(raw.content)
    assert raw.headers["x-breakeven-request-id"] == service.rig.entry.intent.request_id


@pytest.mark.parametrize("include_usage", [False, True])
async def test_the_official_client_streams(service: Service, include_usage: bool) -> None:
    options: dict[str, Any] = {"stream_options": {"include_usage": True}} if include_usage else {}
    async with service.client() as client:
        stream = await client.chat.completions.create(model="auto", messages=MESSAGES, stream=True, **options)
        chunks = [chunk async for chunk in stream]
    text = "".join(chunk.choices[0].delta.content or "" for chunk in chunks if chunk.choices)
    assert text == "Hello, world."
    assert any(chunk.usage for chunk in chunks) is include_usage
    assert service.rig.entry.output_tokens == 4, "usage is always asked for upstream, for the books"


@pytest.mark.parametrize(
    ("model", "key", "expected", "says"),
    [
        ("auto", "bk-wrong", openai.AuthenticationError, "not known here"),
        ("gpt-none", KEY, openai.NotFoundError, '"auto" or one of: a, b'),
        ("auto", "bk-viewer", openai.PermissionDeniedError, "may read but not call"),
    ],
)
async def test_the_official_client_understands_refusals(
    service: Service, model: str, key: str, expected: type[openai.APIStatusError], says: str
) -> None:
    async with client_of(service.url, key) as client:
        with pytest.raises(expected) as caught:
            await client.chat.completions.create(model=model, messages=MESSAGES)
    assert says in str(caught.value)
    assert not service.rig.ledger.entries


async def test_with_a_key_that_cannot_be_looked_up_it_may_be_asked_again(
    service: Service, caplog: pytest.LogCaptureFixture
) -> None:
    """In each format; and unknown keys, of which there may be many, do not flood the log."""
    headers, body = {"authorization": "Bearer bk-new"}, {"model": "auto", "messages": MESSAGES, "max_tokens": 9}
    async with httpx.AsyncClient(base_url=service.url, headers=headers, timeout=60) as client:
        with service.rig.pipeline.keys.doubting("bk-new"):
            paths = ("/v1/chat/completions", "/v1/messages", "/v1/route", "/v1/models")
            refused = [await client.post(path, json=body) for path in paths[:3]] + [await client.get(paths[3])]
    assert [one.status_code for one in refused] == [503] * 4
    assert {one.headers["retry-after"] for one in refused} == {"5"}
    assert all("cannot be reached. Try again." in one.json()["error"]["message"] for one in refused)
    assert "bk-new" not in caplog.text
    assert not [record for record in caplog.records if record.name.startswith("gateway.api")]


async def test_a_broken_stream_raises_in_the_official_client(service: Service) -> None:
    service.rig.one._script = follow([Outcome(fault="reset", fault_after_pieces=2)])  # pyright: ignore[reportPrivateUsage]
    async with service.client() as client:
        stream = await client.chat.completions.create(model="auto", messages=MESSAGES, stream=True)
        with pytest.raises(openai.APIError, match="broke off"):
            async for _ in stream:
                pass
    assert service.rig.entry.status is Status.partial


async def test_models_route_and_health(service: Service) -> None:
    headers = {"authorization": f"Bearer {KEY}"}
    async with httpx.AsyncClient(base_url=service.url, headers=headers, timeout=60) as client:
        listed = (await client.get("/v1/models")).json()
        assert [model["id"] for model in listed["data"]] == ["auto", "a", "b"]
        assert [bool(model["pricing"]) for model in listed["data"]] == [False, True, True]
        assert (await client.get("/v1/models/b")).json()["owned_by"] == "openai"
        assert (await client.get("/v1/models/zzz")).status_code == 404
        service.rig.pipeline.snapshot = make_snapshot(ROUTED, list(service.rig.pipeline.snapshot.candidates.values()))
        listed = (await client.get("/v1/models")).json()
        assert [model["id"] for model in listed["data"]] == ["auto", "gpt-4o", "a", "b"]
        assert (await client.get("/v1/models/gpt-4o")).json()["owned_by"] == "breakeven"
        routed = (await client.post("/v1/route", json={"model": "gpt-4o", "messages": MESSAGES})).json()
        assert (routed["model"], routed["rule"]) == ("a", "named")
        route = (await client.post("/v1/route", json={"model": "auto", "messages": MESSAGES})).json()
        assert (route["model"], route["rule"], route["difficulty"]) == ("a", "default", 0.25)
        assert [one["model"] for one in route["candidates"]] == ["a", "b"]
        assert not service.rig.ledger.entries, "explaining is free"
        assert (await client.get("/healthz")).json()["status"] == "ok"
        ready = await client.get("/readyz")
        assert (ready.status_code, ready.json()["warnings"]) == (200, [])
        assert ready.json()["rules_version"] == service.rig.pipeline.snapshot.rules_version
        service.warnings.append("rules.yaml is not valid here")
        ready = await client.get("/readyz")
        assert (ready.status_code, ready.json()["warnings"]) == (200, ["rules.yaml is not valid here"])
        service.problems.append("the database is away")
        ready = await client.get("/readyz")
        assert (ready.status_code, ready.json()["problems"]) == (503, ["the database is away"])
        by_other_name = await client.get("/health")
        assert (by_other_name.status_code, by_other_name.json()) == (503, ready.json())
        await client.post("/v1/chat/completions", json={"model": "auto", "messages": MESSAGES})
        text = (await client.get("/metrics")).text
        assert 'breakeven_requests_total{backend="one",model="a",status="completed"} 1.0' in text


@pytest.mark.parametrize(
    ("content", "headers", "status", "says"),
    [
        (b"{", {}, 400, "not valid JSON"),
        (b'{"model": "auto", "messages": "hi"}', {}, 400, "messages"),
        (b'{"messages": []}', {}, 400, "model"),
        (b"x" * 1_000_001, {}, 413, "larger than 1,000,000 bytes"),
        (b"{}", {"content-encoding": "gzip"}, 400, "does not match its content-encoding"),
        (b"{}", {"content-encoding": "br"}, 415, "Send the body with gzip"),
        (
            gzip.compress(b"x" * 1_000_001, mtime=0),
            {"content-encoding": "gzip"},
            413,
            "larger than 1,000,000 bytes when",
        ),
        (b"{}", {"x-breakeven-tags": ",".join("abcdefghijklmnopqrst")}, 400, "at most 16 tags"),
        (b"{}", {"x-breakeven-tags": "plain,\u009b2J".encode()}, 400, "printable characters only"),
        (b"{}", {"x-breakeven-tags": b"a, (none)"}, 400, "takes no (none) or (other)"),
        (b'{"model": "auto", "messages": [{"role": "user", "content": "\\ud800"}]}', {}, 400, "half of a character"),
        (b"\xff\xfe", {}, 400, "UTF-16 text. Send JSON in UTF-8."),
        (b'{"model": "auto", "messages": [{"role": "user"}], "max_tokens": 1e400}', {}, 400, "max_tokens"),
    ],
)
async def test_bad_input_is_told_what_is_wrong(
    service: Service, content: bytes, headers: dict[str, str], status: int, says: str
) -> None:
    async with httpx.AsyncClient(base_url=service.url, timeout=60) as client:
        answer = await client.post(
            "/v1/chat/completions", content=content, headers={"authorization": f"Bearer {KEY}", **headers}
        )
    assert answer.status_code == status
    assert set(answer.json()["error"]) == {"message", "type", "param", "code"}
    assert says in answer.json()["error"]["message"]


@pytest.mark.parametrize(("method", "path", "status"), [("GET", "/v1/chat/completions", 405), ("GET", "/nope", 404)])
async def test_unknown_paths_and_methods_answer_in_the_same_shape(
    service: Service, method: str, path: str, status: int
) -> None:
    async with httpx.AsyncClient(base_url=service.url, timeout=60) as client:
        answer = await client.request(method, path)
    assert answer.status_code == status
    assert answer.json()["error"]["message"]


async def test_a_compressed_body_is_served_like_any_other(service: Service) -> None:
    body = gzip.compress(json.dumps({"model": "auto", "messages": MESSAGES}).encode())
    headers = {"authorization": f"Bearer {KEY}", "content-encoding": "gzip"}
    async with httpx.AsyncClient(base_url=service.url, headers=headers, timeout=60) as client:
        answer = await client.post("/v1/chat/completions", content=body)
        refused = await client.post("/v1/chat/completions", content=body, headers={"authorization": "Bearer nobody"})
    assert (answer.status_code, refused.status_code) == (200, 401)
    assert service.load.buffered_bytes == 0
    assert b"hello" in service.rig.one.calls[0].body


async def test_a_byte_order_mark_is_ignored_and_not_sent_on(service: Service) -> None:
    body = json.dumps({"model": "auto", "messages": MESSAGES}).encode("utf-8-sig")
    async with httpx.AsyncClient(base_url=service.url, headers=HEADERS, timeout=60) as client:
        plain = await client.post("/v1/chat/completions", content=body)
        packed = await client.post(
            "/v1/chat/completions", content=gzip.compress(body), headers={"content-encoding": "gzip"}
        )
        route = await client.post("/v1/route", content=body)
    assert (plain.status_code, packed.status_code, route.status_code) == (200, 200, 200)
    assert [call.body[:1] for call in service.rig.one.calls] == [b"{", b"{"]


@pytest.mark.parametrize("is_stream", [False, True])
async def test_a_key_with_limits_reads_what_is_left_of_them(service: Service, is_stream: bool) -> None:
    service.rig.pipeline.admission.limits = {"key-1": parse_limits({"requests_per_minute": 2})}
    body = {"model": "auto", "messages": MESSAGES, "stream": is_stream}
    async with httpx.AsyncClient(base_url=service.url, headers=HEADERS, timeout=60) as client:
        answer = await client.post("/v1/chat/completions", json=body)
        while (refused := await client.post("/v1/chat/completions", json=body)).status_code == 200:
            pass
    assert answer.headers["x-ratelimit-limit-requests"] == "2"
    assert answer.headers["x-ratelimit-remaining-requests"] == "1"
    assert "x-ratelimit-limit-tokens" not in answer.headers
    assert (refused.status_code, refused.headers["x-ratelimit-remaining-requests"]) == (429, "0")


@pytest.mark.parametrize("path", ["/v1/chat/completions/", "/v1/chat/completions//"])
async def test_a_slash_too_many_is_no_other_endpoint(service: Service, path: str) -> None:
    async with httpx.AsyncClient(base_url=service.url, headers=HEADERS, timeout=60) as client:
        assert (await client.post(path, json={"model": "auto", "messages": MESSAGES})).status_code == 200
        assert (await client.get("/v1/models/")).json() == (await client.get("/v1/models")).json()


@pytest.mark.parametrize(
    ("path", "status"), [("/healthz/", 200), ("/nope/", 404), ("//", 404), ("//other.example/", 404)]
)
async def test_no_slash_leads_to_a_host_that_the_caller_names(service: Service, path: str, status: int) -> None:
    async with httpx.AsyncClient(
        base_url=service.url, headers={**HEADERS, "host": "other.example"}, timeout=120
    ) as client:
        answer = await client.get(f"{service.url}{path}")
    assert answer.status_code == status
    assert "location" not in answer.headers


async def test_head_says_what_get_would_without_a_body(service: Service) -> None:
    async with httpx.AsyncClient(base_url=service.url, headers=HEADERS, timeout=60) as client:
        for path, status in (("/healthz", 200), ("/v1/models", 200), ("/v1/models/b", 200), ("/nope", 404)):
            asked, told = await client.head(path), await client.get(path)
            assert (asked.status_code, asked.content) == (status, b"")
            assert asked.headers["content-length"] == told.headers["content-length"]
        assert (await client.head("/v1/chat/completions")).status_code == 405


async def test_a_client_that_leaves_cancels_the_upstream_and_is_booked(service: Service) -> None:
    paused = asyncio.Event()

    async def pause(seconds: float) -> None:
        if seconds:
            paused.set()
            await asyncio.Event().wait()

    service.rig.one._script = follow([Outcome(piece_delay_seconds=1.0)])  # pyright: ignore[reportPrivateUsage]
    service.rig.one._sleep = pause  # pyright: ignore[reportPrivateUsage]
    async with (
        httpx.AsyncClient(base_url=service.url, headers={"authorization": f"Bearer {KEY}"}, timeout=60) as client,
        client.stream(
            "POST", "/v1/chat/completions", json={"model": "auto", "messages": MESSAGES, "stream": True}
        ) as answer,
    ):
        assert answer.status_code == 200
        await paused.wait()
    await until(lambda: service.rig.ledger.entries)
    assert service.rig.entry.status is Status.cancelled
    assert service.rig.one.open_replies == 0


async def test_the_official_anthropic_client_chats_and_streams(service: Service) -> None:
    async with anthropic.AsyncAnthropic(api_key=KEY, base_url=service.url, max_retries=0) as client:
        whole = await client.messages.create(model="auto", max_tokens=100, messages=MESSAGES)
        assert whole.content[0].text == "Hello, world."  # pyright: ignore[reportAttributeAccessIssue]
        assert (whole.usage.input_tokens, whole.usage.output_tokens, whole.stop_reason) == (12, 4, "end_turn")
        async with client.messages.stream(model="auto", max_tokens=100, messages=MESSAGES) as stream:
            text = "".join([piece async for piece in stream.text_stream])
            final = await stream.get_final_message()
        assert text == "Hello, world."
        assert final.usage.output_tokens == 4
        count = await client.messages.count_tokens(model="auto", messages=MESSAGES)
        assert count.input_tokens > 0
    assert len(service.rig.ledger.entries) == 2


async def test_anthropic_callers_get_errors_in_their_shape(service: Service) -> None:
    async with anthropic.AsyncAnthropic(api_key="bk-wrong", base_url=service.url, max_retries=0) as client:
        with pytest.raises(anthropic.AuthenticationError, match="not known here"):
            await client.messages.create(model="auto", max_tokens=100, messages=MESSAGES)
    service.rig.one._script = follow([Outcome(fault="reset", fault_after_pieces=2)])  # pyright: ignore[reportPrivateUsage]
    async with anthropic.AsyncAnthropic(api_key=KEY, base_url=service.url, max_retries=0) as client:
        with pytest.raises(anthropic.APIStatusError, match="broke off"):  # noqa: PT012
            async with client.messages.stream(model="auto", max_tokens=9, messages=MESSAGES) as stream:
                async for _ in stream:
                    pass
    assert service.rig.entry.status is Status.partial


async def test_what_is_answered_leaves_no_cycles(service: Service) -> None:
    """They would be collected only rarely (native/cycles.py)."""
    asked = [
        (path, {"model": "auto", "messages": MESSAGES, "max_tokens": 9, "stream": stream})
        for path in ("/v1/chat/completions", "/v1/messages")
        for stream in (False, True)
    ]
    asked += [("/v1/responses", {"model": "auto", "input": "hello"}), ("/v1/chat/completions", {"model": "nobody"})]
    async with httpx.AsyncClient(base_url=service.url, headers=HEADERS, timeout=120) as client:

        async def ask_all() -> None:
            for path, body in asked:
                await client.post(path, json=body)

        await ask_all()
        gc.collect()
        gc.disable()
        gc.set_debug(gc.DEBUG_SAVEALL)
        try:
            for _ in range(5):
                await ask_all()
            gc.collect()
            ours = [
                one for one in gc.garbage if type(one).__module__.startswith(("gateway.", "backends.", "classifier."))
            ]
        finally:
            gc.set_debug(0)
            gc.garbage.clear()
            gc.enable()
    assert not ours
