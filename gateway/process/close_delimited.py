"""Responses to HTTP/1.0 clients, which know no chunked encoding: the end of the connection ends the body."""

from typing import Any

from uvicorn.protocols.http.httptools_impl import RequestResponseCycle


def use_close_delimited(cycle: RequestResponseCycle) -> None:
    """Call before the cycle's first message. Responses with a content-length are left alone."""
    send, is_of_unknown_length = cycle.send, False

    async def sending(message: Any) -> None:
        nonlocal is_of_unknown_length
        if message["type"] == "http.response.start":
            is_of_unknown_length = all(name.lower() != b"content-length" for name, _ in message.get("headers", ()))
            if is_of_unknown_length:
                cycle.chunked_encoding = False
        elif is_of_unknown_length:  # uvicorn checks the announced length, so announce each chunk's
            cycle.expected_content_length = len(message.get("body", b""))
        await send(message)

    cycle.send = sending
