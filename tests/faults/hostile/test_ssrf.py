"""No caller can choose where we call: two hundred forms of an address, in every place one might be read from, and a
listener that hears nothing. And a provider cannot send us, or our key, anywhere else."""

import asyncio
import ipaddress
import json
from collections.abc import AsyncGenerator, Iterator
from contextlib import asynccontextmanager

import httpx
import pytest

from backends.openai_compatible import OpenAICompatibleBackend
from tests.builders import make_candidate, make_snapshot
from tests.faults.upstream.service import build_app
from tests.live_server import serving
from tests.rig import KEY, Rig
from tests.scripted_provider import Raw, ScriptedProvider

pytestmark = pytest.mark.faults
SCHEMES = ("http", "HTTP", "https", "ftp", "gopher", "dict", "file", "unix", "ws", "//")
PLACES = (
    "model", "base_url", "api_base", "endpoint", "url", "host", "proxy", "upstream", "backend", "provider",
    "azure_endpoint", "extra_body", "extra_headers", "metadata", "callback_url", "webhook", "user", "service_tier",
)  # fmt: skip
HEADERS = ("x-forwarded-host", "x-upstream", "x-base-url", "x-breakeven-backend", "forwarded", "referer")


def hosts() -> Iterator[str]:
    """Ways to write the loopback address, and names that resolve to it."""
    address = ipaddress.IPv4Address("127.0.0.1")
    number = int(address)
    yield from ("127.0.0.1", "127.1", "127.0.1", "localhost", "LOCALHOST", "localhost.", "0.0.0.0", "0")
    yield from (str(number), hex(number), f"0{number:o}", "0x7f.0.0.1", "0177.0.0.1", "0x7f000001", "127.000.000.001")
    yield from ("[::1]", "[::ffff:127.0.0.1]", "[::ffff:7f00:1]", "[0:0:0:0:0:0:0:1]", "[::]", "[::1%25lo]")
    yield from ("user@127.0.0.1", "user:pass@127.0.0.1", "example.com@127.0.0.1", "127.0.0.1#@example.com")
    yield from ("127.0.0.1%00.example.com", "127.0.0.1\\@example.com", "①②⑦.⓪.⓪.①", "127。0。0。1")


def forms(port: int) -> list[str]:
    plain = [f"http://{host}:{port}/v1" for host in hosts()]
    schemes = [f"{scheme}://127.0.0.1:{port}/v1".replace("////", "//") for scheme in SCHEMES]
    shapes = [
        f"http:/{chr(92)}127.0.0.1:{port}", f"http:127.0.0.1:{port}", f"//127.0.0.1:{port}", f"127.0.0.1:{port}",
        f"http://127.0.0.1:{port}/v1?x=1", f"http://127.0.0.1:{port}/v1#x", f" http://127.0.0.1:{port}/v1",
        f"http://127.0.0.1:{port}/../..", f"http://127.0.0.1:{port}/%2e%2e", f"http://127.0.0.1:{port}\r\nX: 1",
        f"\thttp://127.0.0.1:{port}", f"http://127.0.0.1:{port}/;@a", f"view-source:http://127.0.0.1:{port}",
    ]  # fmt: skip
    bare = [f"{host}:{port}" for host in hosts()]
    models = [f"openai/http://{host}:{port}" for host in hosts()]
    dotted = [f"http://{name}:{port}/" for name in ("a.localhost", "127.0.0.1.nip.io", "localtest.me", "lvh.me")]
    latest = [f"http://169.254.169.254:{port}/latest/meta-data/", f"http://metadata.google.internal:{port}/"]
    urls = [*plain, *schemes, *shapes, *bare, *models, *dotted, *latest]
    return [*urls, *(url.upper() for url in urls)]


@asynccontextmanager
async def canary() -> AsyncGenerator[tuple[int, list[bytes]]]:
    """A listener that records every connection."""
    heard: list[bytes] = []

    async def listen(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        heard.append(await reader.read(4096))
        writer.close()

    server = await asyncio.start_server(listen, "127.0.0.1", 0)
    try:
        yield server.sockets[0].getsockname()[1], heard
    finally:
        server.close()
        await server.wait_closed()


def body_with(place: str, value: str) -> dict[str, object]:
    image = {"type": "image_url", "image_url": {"url": value}}
    body: dict[str, object] = {"model": "a", "messages": [{"role": "user", "content": [image]}]}
    return body | {
        place: {"url": value, "base_url": value} if place.startswith("extra") or place == "metadata" else value
    }


async def test_two_hundred_forms_of_an_address_reach_nobody_but_the_configured_upstream() -> None:
    async with canary() as (port, heard), ScriptedProvider() as provider:
        rig = Rig(one=None)
        backend = OpenAICompatibleBackend("one", provider.base_url, "sk-ours")
        rig.pipeline.backends = {"one": backend, "two": rig.two}
        seeing = make_candidate("a", backend="one", supports=frozenset({"streaming", "tools", "vision"}))
        rig.pipeline.snapshot = make_snapshot(candidates=[seeing])
        urls = forms(port)
        assert len(set(urls)) >= 200
        statuses: set[int] = set()
        async with serving(build_app(rig.pipeline)) as url, httpx.AsyncClient(base_url=url, timeout=60) as client:
            for number, form in enumerate(urls):
                headers = {"authorization": f"Bearer {KEY}", "content-type": "application/json"}
                if form.isascii() and form.isprintable() and form == form.strip():
                    headers[HEADERS[number % len(HEADERS)]] = form
                content = json.dumps(body_with(PLACES[number % len(PLACES)], form))
                answer = await client.post("/v1/chat/completions", content=content, headers=headers)
                statuses.add(answer.status_code)
        await backend.aclose()
    assert not heard
    assert statuses <= {200, 400, 404}, "served where it was configured, or refused by name"
    assert len(provider.received) > 150
    assert {request.path for request in provider.received} == {"/v1/chat/completions"}


@pytest.mark.parametrize("status", [301, 302, 303, 307, 308])
async def test_a_redirect_is_not_followed_and_the_key_stays_at_its_origin(status: int) -> None:
    async with canary() as (port, heard):
        away = Raw(status=status, headers={"location": f"http://127.0.0.1:{port}/v1/chat/completions"})
        async with ScriptedProvider(away) as provider:
            rig = Rig()
            backend = OpenAICompatibleBackend("one", provider.base_url, "sk-ours")
            rig.pipeline.backends = {"one": backend, "two": rig.two}
            caller = await rig.ask()
            await backend.aclose()
        assert caller.headers["x-breakeven-model"] == "b"
        assert rig.entry.attempts[0].outcome == "UpstreamUnavailable"
    assert not heard
