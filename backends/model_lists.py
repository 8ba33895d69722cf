"""Parses an endpoint's list of models, or explains why there is none. Pure."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, Protocol, cast, runtime_checkable

import msgspec

from backends.formats.json_objects import NOT_JSON

PREFIX: Final = "models/"
"""Precedes each name in Google's lists."""


@dataclass(frozen=True, slots=True)
class ModelList:
    """The list of one endpoint with one key. `problem` is a sentence; if it is empty, `models` are the names."""

    models: frozenset[str] = frozenset()
    problem: str = ""
    is_key_refused: bool = False
    key: str = ""
    """The label of the key, if the backend has several."""
    is_public: bool = False
    """Served without a key too, so it does not prove that the key works."""
    windows: Mapping[str, int] = field(default_factory=dict[str, int])
    """The context windows that the server was started with, if it tells them (vLLM and SGLang do)."""


@runtime_checkable
class ListsModels(Protocol):
    """A backend that can list its models, at no cost."""

    async def model_lists(self) -> Sequence[ModelList]:
        """One for each of its keys; never raises."""
        ...


def parse_model_list(status: int, body: bytes, *, url: str) -> ModelList:
    """OpenAI's and Anthropic's `data`, Google's `models`, or a bare array."""
    if status in (401, 402, 403):
        problem = f"{url} answers {status}: it rejects the key, or does not let it list models"
        return ModelList(problem=problem, is_key_refused=True)
    if status in (404, 405, 410):
        wrong = "base_url is wrong (most end in /v1), or this endpoint lists no models"
        return ModelList(problem=f"{url} answers {status}: {wrong}")
    if not 200 <= status < 300:
        return ModelList(problem=f"{url} answers {status}")
    models = _models(body)
    if models is None:
        wrong = "a web page or another service answers there: base_url is wrong (most end in /v1)"
        return ModelList(problem=f"{url} answers {status} without a list of models; {wrong}")
    named = ((one.get("id", one.get("name")), one.get("max_model_len")) for one in models)
    found = {name.removeprefix(PREFIX): window for name, window in named if isinstance(name, str)}
    windows = {name: window for name, window in found.items() if isinstance(window, int)}
    return ModelList(frozenset(found), windows=windows)


def _models(body: bytes) -> list[Mapping[str, object]] | None:
    try:
        said: object = msgspec.json.decode(body)
    except NOT_JSON:
        return None
    if isinstance(said, Mapping):
        fields = cast(Mapping[str, object], said)
        said = fields.get("data", fields.get("models"))
    if not isinstance(said, list):
        return None
    return [cast(Mapping[str, object], one) for one in cast(list[object], said) if isinstance(one, Mapping)]
