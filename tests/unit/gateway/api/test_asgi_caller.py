"""When a caller that leaves ends the work on its request."""

import asyncio

from starlette.types import Message

from gateway.api.asgi_caller import AsgiCaller, while_connected


async def test_the_end_of_an_answer_is_waited_for_no_longer_than_is_said() -> None:
    """The caller has left, and the provider's usage report never arrives."""

    async def send(message: object) -> None:
        del message

    caller, said = AsgiCaller(send), asyncio.Event()

    async def leave() -> Message:
        await said.wait()
        return {"type": "http.disconnect"}

    async def serve() -> None:
        caller.outlive(0.01)
        said.set()
        await asyncio.Event().wait()

    async with asyncio.timeout(60):
        await while_connected(serve(), caller, {}, leave)
    assert caller.is_gone
