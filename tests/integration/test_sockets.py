"""WebSockets at `/v1/responses`: through the official client, and with messages that no client would send."""

import asyncio
import json
import os
import signal
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Any

import pytest
from websockets.asyncio.client import ClientConnection, connect
from websockets.exceptions import ConnectionClosed, InvalidStatus

from backends.scripted import Outcome, Script, follow
from backends.translating import TranslatingBackend
from gateway.access.keys import KeyRecord
from gateway.api.shedding import Shedding
from gateway.api.sockets import ResponseSockets, SocketLimits, takes_socket
from gateway.kept_answers.kept_responses import KeptResponses
from gateway.kept_answers.memory_turns import MemoryTurns
from gateway.kept_answers.socket_turns import SocketTurns
from gateway.ledger.entry import Status
from gateway.process.patient_protocol import patient_protocol
from gateway.process.server import bind, serve_until_stopped
from gateway.process.socket_protocol import Sockets
from tests.integration.service import Service
from tests.integration.slow_service import Slow
from tests.live_server import serving
from tests.rig import KEY, Rig
from tests.waiting import until

pytestmark = pytest.mark.integration
LARGEST, BUFFERED = 1_000_000, 8_000_000
Event = dict[str, Any]


def with_sockets(service: Service, *, most: int = 100, open_seconds: float = 3600.0) -> ResponseSockets:
    """As `build_app` puts them together."""
    keys = service.rig.pipeline.keys
    load = service.load

    def key_of(scope: Any) -> KeyRecord:
        given = dict(scope["headers"]).get(b"authorization", b"").decode()
        return keys.authenticate(given, 0)

    posts = Shedding(
        service.app,
        load,
        lambda scope, came: LARGEST,
        whose=lambda scope: key_of(scope).id,
        max_requests=100,
        max_buffered_bytes=BUFFERED,
    )
    service.app.sockets = sockets = ResponseSockets(
        posts,
        load,
        SocketLimits(most, BUFFERED),
        SocketTurns(max_bytes=BUFFERED),
        key_of=key_of,
        admit=lambda key: service.rig.pipeline.admission.admit(key.id, team=key.team, tokens=0),
        open_seconds=open_seconds,
    )
    return sockets


def translating(script: Script | None = None, *, is_keeping: bool = False) -> Service:
    """Model a understands chats only."""
    rig = Rig(script)
    rig.pipeline.backends = {"one": TranslatingBackend(rig.one), "two": TranslatingBackend(rig.two)}
    if is_keeping:
        rig.pipeline.kept_responses = KeptResponses(MemoryTurns(), rig.pipeline.keys.conversation_secret)
    return Service(rig)


@asynccontextmanager
async def served(service: Service, **changes: Any) -> AsyncGenerator[Service]:
    with_sockets(service, **changes)
    taken = Sockets(takes_socket, largest_bytes=LARGEST, most_arriving_bytes=BUFFERED)
    async with serving(service.app, http=patient_protocol(30.0, sockets=taken)) as url:
        service.url = url
        yield service


@pytest.fixture
async def service() -> AsyncGenerator[Service]:
    async with served(translating()) as made:
        yield made


@pytest.fixture
async def slow() -> AsyncGenerator[Slow]:
    made = Slow()
    async with served(made):
        yield made
        made.may_answer.set()


def opened(service: Service, key: str = KEY, path: str = "/v1/responses", **changes: Any) -> connect:
    headers = {"authorization": f"Bearer {key}", **changes}
    return connect(service.url.replace("http", "ws") + path, additional_headers=headers, max_size=None)


async def create(socket: ClientConnection, **asked: Any) -> None:
    await socket.send(json.dumps({"type": "response.create", "model": "a", "input": "hello", **asked}))


async def heard(socket: ClientConnection) -> Event:
    return json.loads(await asyncio.wait_for(socket.recv(), 60))


async def answered(socket: ClientConnection, **asked: Any) -> list[Event]:
    """The messages of an answer."""
    await create(socket, **asked)
    events: list[Event] = []
    while not events or events[-1]["type"] not in ("response.completed", "response.failed", "error"):
        events.append(await heard(socket))
    return events


async def answer(socket: ClientConnection, **asked: Any) -> Event:
    """The response; of an error the message."""
    last = (await answered(socket, **asked))[-1]
    return last.get("response", last)


def texts(service: Service) -> list[list[str]]:
    """What the model was told, call by call."""
    return [[one["content"] for one in json.loads(call.body)["messages"]] for call in service.rig.one.calls]


async def test_the_official_client_is_answered_and_each_response_is_booked(service: Service) -> None:
    async with service.client() as client, client.responses.connect() as connection:
        for asked in ("hello", "again"):
            await connection.response.create(model="a", input=asked)
            said = ""
            async for event in connection:
                said += event.delta if event.type == "response.output_text.delta" else ""
                if event.type == "response.completed":
                    assert event.response.output_text == said == "Hello, world."
                    break
    assert [entry.status for entry in service.rig.ledger.entries] == [Status.completed] * 2
    assert not service.rig.ledger.open


@pytest.mark.parametrize(
    ("changes", "path", "status", "says"),
    [
        ({"key": "bk-unknown"}, "/v1/responses", 401, "not known here"),
        ({"authorization": ""}, "/v1/responses", 401, "No API key was given"),
        ({"key": "bk-viewer"}, "/v1/responses", 403, "may read but not call models"),
        ({}, "/v1/nowhere/responses", 404, "There is no WebSocket at"),
        ({}, "/v1/chat/completions", 426, "/v1/responses has one"),
    ],
)
async def test_who_may_not_open_one_gets_an_http_response(
    service: Service, changes: Any, path: str, status: int, says: str
) -> None:
    with pytest.raises(InvalidStatus) as declined:
        async with opened(service, path=path, **changes):
            pass
    response = declined.value.response
    assert response.status_code == status
    assert response.headers["content-type"] == "application/json"
    assert says in json.loads(response.body or b"")["error"]["message"]


@pytest.mark.parametrize("path", ["/v1/responses/", "/v1"])
async def test_clients_write_its_address_in_several_ways(service: Service, path: str) -> None:
    async with opened(service, path=path) as socket:
        assert (await answer(socket))["status"] == "completed"


async def test_a_key_has_half_of_all_at_most() -> None:
    async with served(translating(), most=4) as service, opened(service), opened(service):
        with pytest.raises(InvalidStatus, match="503"):
            async with opened(service):
                pass
        service.rig.add_key("bk-other", KeyRecord("key-4", "other", "app"))
        service.rig.pipeline.keys.replace(service.rig.records)
        async with opened(service, "bk-other") as socket:
            assert (await answer(socket))["status"] == "completed"


async def test_an_error_is_a_message_and_the_next_request_is_answered(service: Service) -> None:
    async with opened(service) as socket:
        refused = await answer(socket, model="unheard-of")
        assert (refused["type"], refused["status"], refused["error"]["code"]) == ("error", 404, "model_not_found")
        assert len(refused["headers"]["x-request-id"]) == 32
        for sent, code in [
            ("{", "invalid_json"),
            ("[]", "invalid_json"),
            ('{"type": "response.append"}', "unknown_event"),
            ('{"type": "response.create", "stream_id": ""}', "invalid_stream_id"),
            ('{"type": "response.create", "type": "response.create"}', "invalid_json"),
            ("[" + "{}," * 200_000, "too_many_values"),
        ]:
            await socket.send(sent)
            wrong = await heard(socket)
            assert (wrong["type"], wrong["status"], wrong["error"]["code"]) == ("error", 400, code), sent[:80]
        assert (await answer(socket))["output"]


async def test_a_response_that_breaks_off_does_not_spoil_the_next() -> None:
    script = follow([Outcome(fault="reset", fault_after_pieces=2), Outcome()])
    async with served(translating(script)) as service, opened(service) as socket:
        broken = await answer(socket)
        assert (broken["type"], broken["status"], broken["error"]["code"]) == ("error", 502, "stream_broken")
        assert (await answer(socket))["status"] == "completed"


async def test_a_key_that_is_revoked_meanwhile_is_refused(service: Service) -> None:
    async with opened(service) as socket:
        await answer(socket)
        service.rig.pipeline.keys.replace({})
        assert (await answer(socket))["status"] == 401


async def test_the_last_response_can_be_continued_though_it_is_not_stored(service: Service) -> None:
    async with opened(service) as socket:
        first = await answer(socket, store=False, input="one")
        second = await answer(socket, store=False, input="two", previous_response_id=first["id"])
        third = await answer(socket, store=False, input="three", previous_response_id=second["id"])
        assert texts(service)[2] == ["one", "Hello, world.", "two", "Hello, world.", "three"]
        gone = await answer(socket, store=False, input="four", previous_response_id=first["id"])
        assert (gone["status"], gone["error"]["code"]) == (400, "previous_response_not_found"), "only the latest is"
    async with opened(service) as another:
        gone = await answer(another, store=False, previous_response_id=third["id"])
        assert (gone["status"], gone["error"]["code"]) == (400, "previous_response_not_found"), "in its own WebSocket"


async def test_a_stored_response_begins_a_chain_of_those_that_are_not() -> None:
    async with served(translating(is_keeping=True)) as service:
        async with opened(service) as socket:
            first = await answer(socket, input="one")
        async with opened(service) as socket:
            second = await answer(socket, store=False, input="two", previous_response_id=first["id"])
            third = await answer(socket, input="three", previous_response_id=second["id"])
            await answer(socket, input="four", previous_response_id=third["id"])
        hello = "Hello, world."
        assert texts(service)[3] == ["one", hello, "two", hello, "three", hello, "four"]


@pytest.mark.parametrize(
    ("wrong", "says"),
    [({"type": "message"}, "role"), ({"type": "function_call_output", "call_id": "c", "output": "x"}, "No tool call")],
)
async def test_after_a_failure_what_was_to_be_continued_is_forgotten(service: Service, wrong: Event, says: str) -> None:
    async with opened(service) as socket:
        first = await answer(socket, store=False)
        failed = await answer(socket, store=False, input=[wrong], previous_response_id=first["id"])
        assert failed["status"] == 400
        assert says in failed["error"]["message"]
        assert len(service.rig.one.calls) == 1
        gone = await answer(socket, store=False, previous_response_id=first["id"])
        assert gone["error"]["code"] == "previous_response_not_found"


async def test_a_warm_up_asks_no_model_and_can_be_continued(service: Service) -> None:
    async with opened(service) as socket:
        warm = await answered(socket, generate=False, store=False, input="one", instructions="be brief")
        assert [event["type"] for event in warm] == ["response.created", "response.in_progress", "response.completed"]
        done = warm[-1]["response"]
        assert (done["status"], done["output"], done["usage"]["total_tokens"]) == ("completed", [], 0)
        assert not service.rig.one.calls
        await answer(socket, store=False, input="two", previous_response_id=done["id"])
    assert texts(service) == [["one", "two"]]
    assert len(service.rig.ledger.entries) == 1
    assert (await refused_warm_up(service))["status"] == 400


async def refused_warm_up(service: Service) -> Event:
    async with opened(service) as socket:
        return await answer(socket, generate=False, input=7)


async def test_lanes_are_answered_at_the_same_time_and_each_in_its_order(slow: Slow) -> None:
    async with opened(slow) as socket:
        for lane, said in [("a", "one"), ("a", "two"), ("b", "three")]:
            await create(socket, stream_id=lane, input=said, store=False)
        await until(lambda: len(slow.rig.one.calls) == 2)
        assert sorted(texts(slow)) == [["one"], ["three"]]
        slow.may_answer.set()
        ended: list[Event] = []
        while len(ended) < 3:
            event = await heard(socket)
            assert event["stream_id"] in ("a", "b")
            if event["type"] == "response.completed":
                ended.append(event)
        assert sorted(event["stream_id"] for event in ended) == ["a", "a", "b"]
        fork = next(event["response"]["id"] for event in ended if event["stream_id"] == "b")
        await answer(socket, stream_id="c", store=False, input="four", previous_response_id=fork)
        assert texts(slow)[-1] == ["three", "Hello, world.", "four"]
        for number in range(29):
            assert (await answer(socket, stream_id=f"more-{number}", model="unheard-of"))["status"] == 404
        refused = await answer(socket, stream_id="one-more")
        assert refused["error"]["code"] == "websocket_stream_limit_reached"


async def test_too_many_that_wait_are_refused(slow: Slow) -> None:
    async with opened(slow) as socket:
        for _ in range(102):
            await create(socket)
        refused = await heard(socket)
        assert (refused["status"], refused["error"]["code"]) == (503, "overloaded")
    await until(lambda: slow.load.buffered_bytes == 0)
    assert slow.load.requests == 0


async def test_who_leaves_is_a_caller_that_left(slow: Slow) -> None:
    async with opened(slow) as socket:
        await create(socket)
        await create(socket)
        await until(lambda: slow.rig.one.calls)
    entry = await slow.entry()
    assert (entry.status, entry.error) == (Status.cancelled, "client_disconnected")
    assert len(slow.rig.one.calls) == 1


async def test_headers_of_the_handshake_are_those_of_each_request(service: Service) -> None:
    headers = {"x-breakeven-tags": "agent", "idempotency-key": "1"}
    async with opened(service, **headers) as socket:
        assert [(await answer(socket, input=said))["status"] for said in ("one", "two")] == ["completed"] * 2
    assert [entry.intent.tags for entry in service.rig.ledger.entries] == [("agent", "base")] * 2


async def test_a_response_that_is_being_written_when_the_time_is_over_is_finished() -> None:
    slow = Slow()
    async with served(slow, open_seconds=0.5), opened(slow) as socket:
        await create(socket)
        await until(lambda: slow.rig.one.calls)
        await asyncio.sleep(0.5)  # it was opened before
        late = await answer(socket)
        assert (late["status"], late["error"]["code"]) == (503, "overloaded")
        slow.may_answer.set()
        while (event := await heard(socket))["type"] != "response.completed":
            pass
        assert (await heard(socket))["error"]["code"] == "websocket_connection_limit_reached"
        with pytest.raises(ConnectionClosed) as closed:
            await heard(socket)
        assert closed.value.rcvd is not None
        assert closed.value.rcvd.code == 1001
        assert event["response"]["status"] == "completed"


async def test_a_server_that_stops_finishes_what_is_being_written_and_begins_nothing_more() -> None:
    slow = Slow()
    with_sockets(slow)
    taken = Sockets(takes_socket, largest_bytes=LARGEST, most_arriving_bytes=BUFFERED)
    with bind("127.0.0.1", 0) as listener:
        running = asyncio.create_task(serve_until_stopped(slow.app, listener, drain_seconds=300, sockets=taken))
        slow.url = f"http://127.0.0.1:{listener.getsockname()[1]}"
        async with opened(slow) as idle, opened(slow) as socket:
            await create(socket, stream_id="b")
            await create(socket, stream_id="b", input="never begun")
            await until(lambda: slow.rig.one.calls)
            os.kill(os.getpid(), signal.SIGTERM)
            with pytest.raises(ConnectionClosed, match="1012"):
                await heard(idle)
            slow.may_answer.set()
            while (await heard(socket))["type"] != "response.completed":
                pass
            given_up = await heard(socket)
            assert (given_up["stream_id"], given_up["status"], given_up["error"]["code"]) == ("b", 503, "overloaded")
            with pytest.raises(ConnectionClosed, match="1012"):
                await heard(socket)
        await asyncio.wait_for(running, 60)
    assert (await slow.entry()).status is Status.completed
    assert len(slow.rig.one.calls) == 1


async def test_a_response_that_outlasts_the_stop_is_booked_as_cut_off() -> None:
    slow = Slow()
    with_sockets(slow)
    taken = Sockets(takes_socket, largest_bytes=LARGEST, most_arriving_bytes=BUFFERED)
    with bind("127.0.0.1", 0) as listener:
        running = asyncio.create_task(serve_until_stopped(slow.app, listener, drain_seconds=0, sockets=taken))
        slow.url = f"http://127.0.0.1:{listener.getsockname()[1]}"
        async with opened(slow) as socket:
            await create(socket)
            await until(lambda: slow.rig.one.calls)
            os.kill(os.getpid(), signal.SIGTERM)
            await asyncio.wait_for(running, 60)
            assert (await slow.entry()).status is Status.cancelled
