"""The effort of a chat for servers that refuse the asked one and name theirs: Qwen3.8's template takes `xhigh`,
`medium` and `low`, older vLLM no `minimal`, and Claude Code asks for `high` with each request. Pure."""

import re
from collections.abc import Mapping, Sequence
from typing import Final

import msgspec

from backends.formats.chat_fields import EFFORTS
from backends.formats.json_objects import decode_object, integer, text_of, without_escapes
from backends.formats.json_splice import NotAnObject, find_members, splice

EFFORT: Final = b'"reasoning_effort"'
_REFUSED: Final = re.compile(rb"reasoning[_. ]?effort", re.IGNORECASE)
_LIST: Final = re.compile(rb"supported|allowed|available|valid|(?:must|should) be|one of", re.IGNORECASE)
_BUDGETS: Final = ((1_024, "low"), (8_192, "medium"))
"""(most thinking tokens, effort), as Google's OpenAI-compatible endpoint maps efforts."""
_LEVEL: Final = re.compile(rb"\b(?:%b)\b" % "|".join(EFFORTS).encode())


def effort_of(body: bytes) -> str | None:
    """The effort that a chat asks for, if it is a known one."""
    member = find_members(body).get("reasoning_effort")
    said = member.of(body).strip(b'"').decode(errors="replace") if member else ""
    return said if said in EFFORTS else None


def effort_of_budget(tokens: int) -> str:
    """The effort that is nearest to a budget for thinking, of Gemini's or Anthropic's format."""
    return next((effort for most, effort in _BUDGETS if tokens <= most), "high")


def with_effort_alone(body: bytes, names: Sequence[str]) -> bytes:
    """A chat in which `reasoning`, as OpenRouter has it, or `thinking`, as DeepSeek, Moonshot and Z.ai have it, is a
    `reasoning_effort`, unless it has one; the same bytes if it has none of these `names`."""
    if not any(b'"%b"' % name.encode() in body for name in names):
        return body
    try:
        members = find_members(body)
    except NotAnObject:  # the next reader reports what is wrong
        return body
    said = {name: decode_object(at.of(body)) for name in names if (at := members.get(name))}
    asked = {name: fields for name, fields in said.items() if fields is not None}
    if not asked:
        return body
    edits: dict[str, bytes | None] = dict.fromkeys(asked)
    effort = next(filter(None, map(_effort_in, asked.values())), None)
    told = members.get("reasoning_effort")
    if effort and (told is None or told.of(body) == b"null"):
        edits["reasoning_effort"] = msgspec.json.encode(effort)
    return splice(body, edits, members)


def _effort_in(asked: Mapping[str, object]) -> str | None:
    """https://openrouter.ai/docs/use-cases/reasoning-tokens: an effort, a budget, or just that it thinks, or not."""
    kind = text_of(asked, "type")
    if asked.get("enabled") is False or kind == "disabled":
        return "none"
    if (effort := text_of(asked, "effort")) in EFFORTS:
        return effort
    if budget := integer(asked, "max_tokens") or integer(asked, "budget_tokens"):
        return effort_of_budget(budget)
    return "medium" if asked.get("enabled") is True or kind == "enabled" else None


def offered_effort(asked: str, refusal: bytes) -> str | None:
    """The lowest effort that an error names as supported and that is not below the asked one, else the highest; None if
    it names none. Thinking is not turned off for a caller who wants some."""
    found = _LIST.search(refusal) if _REFUSED.search(refusal) else None
    if found is None:
        return None
    offered = {level.decode() for level in _LEVEL.findall(refusal, found.start())} - {asked}
    if asked != "minimal":
        offered.discard("none")
    known = [level for level in EFFORTS if level in offered]
    enough = EFFORTS[EFFORTS.index(asked) :]
    return next((level for level in known if level in enough), known[-1] if known else None)


def may_be_repeated(body: bytes) -> bool:
    """Whether a chat, or a message, speaks of efforts beside its own: a server that repeats it says nothing about
    others."""
    return _REFUSED.search(without_escapes(splice(body, {"reasoning_effort": None}))) is not None


def with_effort(body: bytes, effort: str) -> bytes:
    return splice(body, {"reasoning_effort": msgspec.json.encode(effort)})
