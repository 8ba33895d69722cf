"""Counts an answer's calls of its provider's own tools, which are billed beside the tokens. Pure; knows no prices."""

import re
from collections.abc import Mapping
from typing import Final, NamedTuple

from msgspec.structs import replace

from backends.formats.json_objects import Fields, objects_of, part_of, text_of
from backends.formats.usage_wire import MalformedUsage, token_count
from backends.usage import Usage

_NO_SEARCH: Final = frozenset({"open_page", "find_in_page", "find"})
"""Actions of a `web_search_call` on a page already found; only searches are billed."""
_BILLED_OTHERWISE: Final = frozenset({"code_interpreter_call", "image_generation_call", "x_search_call"})


_SEARCHES_BY_BLOCKS: Final = re.compile(r"gpt-4(?:o|\.1)-mini(?:-\d{4}-\d\d-\d\d)?")
_BLOCK_TOKENS: Final = 8_000
"""Of input, for each search. Source: OpenAI's pricing page."""


class ToolCalls(NamedTuple):
    """As the classes of `backends.usage.Usage`."""

    web_searches: int = 0
    file_searches: int = 0
    other_tool_calls: int = 0


def calls_of_response(response: Mapping[str, object]) -> ToolCalls:
    """The tool calls of a Responses API answer: they are not in its usage, but each is an item of its output.

    The older `web_search_preview` is priced differently from `web_search`, and only the list of tools tells them apart.
    """
    items = objects_of(response.get("output"))
    searches = _reported_searches(response)
    if searches is None:
        searches = sum(map(_is_web_search, items))
    files = sum(text_of(item, "type") == "file_search_call" for item in items)
    others = sum(text_of(item, "type") in _BILLED_OTHERWISE or _is_hosted_shell(item) for item in items)
    if any(map(_is_preview, objects_of(response.get("tools")))):
        return ToolCalls(0, files, others + searches)
    return ToolCalls(searches, files, others)


def with_searched(usage: Usage, response: Mapping[str, object]) -> Usage:
    """A usage with what its searches found, which OpenAI bills by blocks for two models. Whether it counts them nobody
    says: they are added where it is too low to have them, and it is an estimate either way."""
    is_by_blocks = _SEARCHES_BY_BLOCKS.fullmatch(text_of(response, "model") or "") is not None
    if not usage.web_searches or not is_by_blocks:
        return usage
    blocks = usage.web_searches * _BLOCK_TOKENS
    more = blocks if usage.input_tokens < blocks else 0
    return replace(usage, input_tokens=usage.input_tokens + more, is_estimated=True)


def _reported_searches(response: Mapping[str, object]) -> int | None:
    """The number that some providers report themselves; None without a believable one."""
    said = part_of(part_of(response, "tool_usage"), "web_search").get("num_requests")
    try:
        return None if said is None else token_count(said, "num_requests")
    except MalformedUsage:
        return None


def _is_web_search(item: Fields) -> bool:
    return text_of(item, "type") == "web_search_call" and text_of(part_of(item, "action"), "type") not in _NO_SEARCH


def _is_hosted_shell(item: Fields) -> bool:
    """Whether it ran in the provider's container; in the caller's own environment it is not billed."""
    place = text_of(part_of(item, "environment"), "type")
    return text_of(item, "type") == "shell_call" and place not in (None, "local")


def _is_preview(tool: Fields) -> bool:
    return (text_of(tool, "type") or "").startswith("web_search_preview")
