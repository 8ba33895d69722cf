"""Keeps the responses that pass through to their callers, if the gateway is to store them."""

from dataclasses import dataclass
from typing import Final

import msgspec

from backends.formats.json_objects import decode_object
from backends.formats.json_splice import NotAnObject, splice
from backends.protocol import Chunk
from gateway.kept_answers.kept_responses import KeptResponses, Resumed
from gateway.request.callers import PassingCaller
from gateway.request.run import Caller

_ENDS: Final = (b"event: response.completed\ndata: ", b"event: response.incomplete\ndata: ")


class _Ended(msgspec.Struct):
    response: msgspec.Raw


_ENDED: Final = msgspec.json.Decoder(_Ended)


def keeping(kept: KeptResponses, caller: Caller, resumed: Resumed | None, request_id: str) -> Caller:
    """Wraps the caller so that the answer is kept before its last byte is sent: a reference may come at once."""
    if resumed is None or not resumed.is_kept:
        return caller
    return _Keeping(caller, kept, resumed, f"resp_{request_id}")


@dataclass(slots=True)
class _Keeping(PassingCaller):
    """A Caller that keeps the response passing through, if it is one of ours and complete."""

    kept: KeptResponses
    resumed: Resumed
    response_id: str

    async def send(self, payload: bytes, *, chunk: Chunk | None = None, is_last: bool = False) -> None:
        if chunk is not None:
            response = self._response(payload, is_last=is_last)
            if response is not None and self.resumed.is_background:
                response = in_background(response, self.response_id)
            if response is not None and (decode_object(response) or {}).get("id") == self.response_id:
                await self.kept.keep(self.resumed, self.response_id, response)
        await self.caller.send(payload, chunk=chunk, is_last=is_last)

    def _response(self, payload: bytes, *, is_last: bool) -> bytes | None:
        """The whole response, if this payload is its end."""
        if self.content_type == "application/json":
            return payload if is_last else None
        for mark in _ENDS:
            _, found, event = payload.rpartition(mark)
            if found:
                return bytes(_ENDED.decode(event.partition(b"\n")[0]).response)
        return None


def in_background(response: bytes, response_id: str) -> bytes:
    """A response, by whoever it was written, under the id that its caller was told."""
    named = {"id": response_id, "background": True}
    try:
        return splice(response, {name: msgspec.json.encode(value) for name, value in named.items()})
    except NotAnObject:  # with a key twice, as its provider wrote it; but it is paid for
        return msgspec.json.encode((decode_object(response) or {}) | named)
