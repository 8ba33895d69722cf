"""A function in the place of litellm's, and what it is asked, answers and raises."""

import json
from dataclasses import dataclass

from backends.protocol import Call, Timeouts

Json = dict[str, object]


HELLO = [{"role": "user", "content": "hi"}]


BODY = {"model": "auto", "messages": HELLO, "temperature": 0.5}


@dataclass
class Piece:
    document: object
    _hidden_params: object = None

    def model_dump_json(self, *, exclude_none: bool) -> str:
        assert exclude_none
        return json.dumps(self.document)


def make_call(
    body: object = BODY, *, model: str = "azure/x", stream: bool = False, timeouts: Timeouts | None = None
) -> Call:
    return Call("chat.completions", model, json.dumps(body).encode(), stream, "r-1", timeouts or Timeouts(), True)


class FakeLitellm:
    def __init__(self, answer: object) -> None:
        self.answer = answer
        self.arguments: dict[str, object] = {}

    async def __call__(self, **arguments: object) -> object:
        self.arguments = arguments
        if isinstance(self.answer, Exception):
            raise self.answer
        return self.answer


def error_named(name: str, status: int | None, **attributes: object) -> Exception:
    return type(name, (Exception,), {"status_code": status, "message": "why", **attributes})("why")


PLAIN = Piece({"choices": [{"index": 0, "message": {"content": "hello"}, "finish_reason": "stop"}]})
