"""The gateway as a caller sees it, in memory and in virtual time: HTTP messages in and out, without a socket."""

import asyncio
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from backends.scripted import Script, ScriptedBackend
from gateway.api.shedding import Load
from gateway.api.token_path import TokenPath
from gateway.api.unpacking import Unpacker
from gateway.kept_answers.idempotency import Idempotency
from gateway.kept_answers.memory_idempotency import MemoryIdempotency
from gateway.pipeline import Pipeline
from tests.rig import KEY, Rig
from tests.virtual_time import now


@dataclass(slots=True)
class Heard:
    """What a caller received: (second, bytes) of each piece."""

    status: int | None = None
    headers: Mapping[str, str] = field(default_factory=dict[str, str])
    pieces: list[tuple[float, bytes]] = field(default_factory=list[tuple[float, bytes]])
    is_complete: bool = False

    @property
    def body(self) -> bytes:
        return b"".join(piece for _, piece in self.pieces)

    @property
    def comments(self) -> list[float]:
        """The times at which a heartbeat came."""
        return [at for at, piece in self.pieces if piece.startswith(b":")]

    @property
    def error(self) -> dict[str, Any]:
        return json.loads(self.body)["error"]


def timed_rig(one: Script, two: Script | None = None, **changes: Any) -> Rig:
    """A rig whose backends take the time their script says."""
    rig = Rig(one, two, **changes)
    rig.one = ScriptedBackend("one", one, keeps_calls=True)
    rig.two = ScriptedBackend("two", two, keeps_calls=True) if two else rig.two
    rig.pipeline.backends = {"one": rig.one, "two": rig.two}
    rig.pipeline.monotonic = now
    return rig


def build_app(pipeline: Pipeline) -> TokenPath:
    def authenticate(given: str | None) -> str:
        return pipeline.keys.authenticate(given, 0).id

    return TokenPath(
        pipeline,
        max_body_bytes=1_000_000,
        idempotency=Idempotency(MemoryIdempotency(), authenticate),
        unpacker=Unpacker(Load(), authenticate, max_bytes=1_000_000),
    )


async def call(pipeline: Pipeline, *, leaves_at: float | None = None, sends_body: bool = True, **body: Any) -> Heard:
    """One chat request; the caller hangs up at that second."""
    heard = Heard()
    full = {"model": "auto", "messages": [{"role": "user", "content": "hello"}], **body}
    messages = [{"type": "http.request", "body": json.dumps(full).encode(), "more_body": False}] if sends_body else []

    async def receive() -> dict[str, Any]:
        if messages:
            return messages.pop()
        if leaves_at is None:
            await asyncio.Event().wait()
        await asyncio.sleep(max(0.0, (leaves_at or 0.0) - now()))
        return {"type": "http.disconnect"}

    async def send(message: Mapping[str, Any]) -> None:
        if message["type"] == "http.response.start":
            heard.status = message["status"]
            heard.headers = {name.decode(): value.decode() for name, value in message["headers"]}
        else:
            assert leaves_at is None or now() <= leaves_at, "sent to a caller that has gone"
            heard.pieces.append((now(), message["body"]))
            heard.is_complete = not message.get("more_body", False)

    scope: dict[str, Any] = {
        "type": "http",
        "method": "POST",
        "path": "/v1/chat/completions",
        "headers": [(b"authorization", f"Bearer {KEY}".encode())],
    }
    await build_app(pipeline)(scope, receive, send)
    return heard
