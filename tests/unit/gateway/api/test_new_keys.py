"""Keys that were created outside this process."""

import json

import pytest
from starlette.types import Message, Receive, Scope, Send

from gateway.access.keys import KeyRecord, KeyRing, hash_key
from gateway.api.new_keys import NewKeys
from gateway.errors import KeyInDoubt, Unauthenticated
from gateway.openai_errors import body_of, headers_of, status_of

PEPPER = b"p" * 32


class Elsewhere:
    """A key store that this process reads on catching up, and an application that answers every known key."""

    def __init__(self) -> None:
        self.ring = KeyRing(PEPPER)
        self.made: dict[bytes, KeyRecord] = {}
        self.looks = 0
        self.is_away = False
        self.answered: list[bool] = []
        self.app = NewKeys(self.serve, self.ring, self.catch_up)

    async def catch_up(self) -> bool:
        self.looks += 1
        if not self.is_away:
            self.ring.replace(dict(self.made))
        return not self.is_away

    async def serve(self, scope: Scope, receive: Receive, send: Send) -> None:
        given = dict(scope.get("headers", ())).get(b"authorization")
        self.answered.append(given is not None and self.ring.is_known(given.decode()))

    async def ask(self, key: str | None, kind: str = "http") -> None:
        headers = [] if key is None else [(b"authorization", f"Bearer {key}".encode())]

        async def receive() -> Message:
            raise AssertionError("no body is read before")

        async def send(message: Message) -> None:
            raise AssertionError(message)

        await self.app({"type": kind, "headers": headers}, receive, send)


async def test_a_key_that_was_made_elsewhere_is_known_at_its_first_request() -> None:
    elsewhere = Elsewhere()
    elsewhere.made[hash_key(PEPPER, "bk-new")] = KeyRecord("1", "new", "app")
    for _ in range(3):
        await elsewhere.ask("bk-new")
    assert elsewhere.answered == [True, True, True]
    assert elsewhere.looks == 1


async def test_a_stranger_is_looked_for_each_time_and_nobody_else() -> None:
    elsewhere = Elsewhere()
    elsewhere.made[hash_key(PEPPER, "bk-known")] = KeyRecord("1", "known", "app")
    await elsewhere.catch_up()
    for key in ("bk-known", "bk-stranger", None, "bk-stranger", "bk-known"):
        await elsewhere.ask(key)
    await elsewhere.app({"type": "lifespan"}, *_unused())
    assert elsewhere.answered == [True, False, False, False, True, False]
    assert elsewhere.looks == 1 + 2


async def test_while_the_store_cannot_be_asked_nobody_is_told_that_a_key_is_none() -> None:
    """Clients treat 401 as final, and the key may have just been created. Known keys are answered as usual."""
    elsewhere, told = Elsewhere(), list[type[Unauthenticated] | None]()
    known = {"bk-known": KeyRecord("1", "known", "app"), "bk-revoked": KeyRecord("2", "old", "app", revoked_at_us=1)}
    elsewhere.made |= {hash_key(PEPPER, secret): record for secret, record in known.items()}
    await elsewhere.catch_up()

    async def serve(scope: Scope, receive: Receive, send: Send) -> None:
        given = dict(scope["headers"]).get(b"authorization")
        try:
            elsewhere.ring.authenticate(None if given is None else given.decode(), 0)
        except Unauthenticated as error:
            told.append(type(error))
        else:
            told.append(None)

    elsewhere.app = NewKeys(serve, elsewhere.ring, elsewhere.catch_up)
    elsewhere.is_away = True
    for key in ("bk-new", "bk-known", "bk-revoked", None):
        await elsewhere.ask(key)
    elsewhere.is_away = False
    await elsewhere.ask("bk-new")
    assert told == [KeyInDoubt, None, Unauthenticated, Unauthenticated, Unauthenticated]


async def test_one_that_is_asked_for_twice_is_in_doubt_until_both_are_answered() -> None:
    ring = KeyRing(PEPPER)
    with ring.doubting("Bearer bk-new"):
        with ring.doubting("bk-new"):
            pass
        with pytest.raises(KeyInDoubt) as refused:
            ring.authenticate("bk-new", 0)
    assert (status_of(refused.value), headers_of(refused.value)) == (503, {"retry-after": "5"})
    assert json.loads(body_of(refused.value))["error"]["code"] == "database_unavailable"


def _unused() -> tuple[Receive, Send]:
    async def receive() -> Message:
        raise AssertionError

    async def send(message: Message) -> None:
        raise AssertionError(message)

    return receive, send
