"""Keys that were made where this process did not see it."""

from starlette.types import Message, Receive, Scope, Send

from gateway.access.keys import KeyRecord, KeyRing, hash_key
from gateway.api.new_keys import NewKeys

PEPPER = b"p" * 32


class Elsewhere:
    """A key store that this process reads when it catches up, and an application that answers whoever is known."""

    def __init__(self) -> None:
        self.ring = KeyRing(PEPPER)
        self.made: dict[bytes, KeyRecord] = {}
        self.looks = 0
        self.answered: list[bool] = []
        self.app = NewKeys(self.serve, self.ring, self.catch_up)

    async def catch_up(self) -> None:
        self.looks += 1
        self.ring.replace(dict(self.made))

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


def _unused() -> tuple[Receive, Send]:
    async def receive() -> Message:
        raise AssertionError

    async def send(message: Message) -> None:
        raise AssertionError(message)

    return receive, send
