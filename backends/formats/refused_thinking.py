"""Kinds of thinking in Anthropic's format that a model refuses: Claude before 4.6, and other models, `adaptive`, which
Claude Code asks of every model whose name it does not know; Claude since 4.7 `enabled` with a budget. Pure."""

import re
from collections.abc import Iterable, Mapping
from typing import Final, Literal

import msgspec

from backends.formats.json_objects import decode_object, text_of, without_escapes
from backends.formats.json_splice import Member, find_members, splice

Kind = Literal["enabled", "adaptive"]
_REFUSED: Final[tuple[tuple[Kind, re.Pattern[bytes]], ...]] = (
    ("enabled", re.compile(rb"thinking\.type\.enabled[\\\"'` ]{0,4}is not supported")),
    ("adaptive", re.compile(rb"tag 'adaptive'|'?adaptive'? (?:thinking )?is not\s+supported", re.IGNORECASE)),
)
"""As Anthropic, its models at Vertex, and DashScope say it. In the order in which they are mended."""
_ABOUT_THINKING: Final = b"clear_thinking"
_DISABLED: Final = b'{"type":"disabled"}'


def refused_kind(refusal: bytes) -> Kind | None:
    """The kind that an error refuses."""
    return next((kind for kind, words in _REFUSED if words.search(refusal)), None)


def may_be_repeated(body: bytes) -> bool:
    """Whether a request has such an error's words: a server that repeats them says nothing about other requests."""
    return refused_kind(without_escapes(body)) is not None


def without_kinds(body: bytes, kinds: Iterable[str]) -> bytes:
    """A request without these kinds: a budget is left to the model, and what would be left to it is not asked for; the
    same bytes if it asks for neither. Nor is it asked then to forget thinking, which Anthropic refuses without any."""
    for kind, _ in _REFUSED:
        if kind in kinds:
            body = _without(body, kind)
    return body


def turned_off(body: bytes) -> bytes:
    """A request with thinking turned off."""
    members = find_members(body)
    return splice(body, {"thinking": _DISABLED, **_no_forgetting(body, members)}, members)


def _without(body: bytes, kind: Kind) -> bytes:
    members = find_members(body)
    if (member := members.get("thinking")) is None:
        return body
    asked = decode_object(member.of(body)) or {}
    if text_of(asked, "type") != kind:
        return body
    if kind == "enabled":
        told = {name: value for name, value in asked.items() if name != "budget_tokens"} | {"type": "adaptive"}
        return splice(body, {"thinking": msgspec.json.encode(told)}, members)
    return splice(body, {"thinking": None, **_no_forgetting(body, members)}, members)


def _no_forgetting(body: bytes, members: Mapping[str, Member]) -> Mapping[str, None]:
    managed = members.get("context_management")
    return {"context_management": None} if managed and _ABOUT_THINKING in managed.of(body) else {}
