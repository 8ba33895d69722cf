"""Answers to callers of HTTP/1.0, which know no chunks: what ends such an answer is the end of its connection."""

from typing import Any

from uvicorn.protocols.http.httptools_impl import RequestResponseCycle


def use_close_delimited(cycle: RequestResponseCycle) -> None:
    """From its first message on. An answer that says how long it is goes out as it is."""
    send, is_of_unknown_length = cycle.send, False

    async def sending(message: Any) -> None:
        nonlocal is_of_unknown_length
        if message["type"] == "http.response.start":
            is_of_unknown_length = all(name.lower() != b"content-length" for name, _ in message.get("headers", ()))
            if is_of_unknown_length:
                cycle.chunked_encoding = False
        elif is_of_unknown_length:  # of which uvicorn checks that it is kept
            cycle.expected_content_length = len(message.get("body", b""))
        await send(message)

    cycle.send = sending
