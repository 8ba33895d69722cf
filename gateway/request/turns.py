"""A body's turns, each (role, text), for the classifier and the prompt caches. Pure; knows no wire format."""

from collections.abc import Sequence

import msgspec

from classifier.protocol import Conversation
from gateway.upstreams.prompt_prefixes import Prefix, prefixes_of

Turns = list[tuple[str, str]]
INSTRUCTIONS = ("system", "developer")
FREE_CHOICE = (b"", b"null", b'"auto"')
"""Values of `tool_choice` that force no tool: callers that force one want its arguments, and seldom send a result."""


class Reuse(msgspec.Struct, frozen=True):
    """Tokens of the first turn; of that turn plus the tools before it, if it is an instruction (otherwise 0); and
    whether tools are offered that have not been called yet."""

    first_turn_tokens: int
    beginning_tokens: int
    opens_tool_use: bool


def conversation_of(turns: Turns, *, tools: int, images: int, wants_json: bool) -> Conversation:
    """The last question and what precedes it."""
    instructions: list[str] = []
    others: list[str] = []
    last = None
    for role, text in turns:
        if role in INSTRUCTIONS:
            instructions.append(text)
        else:
            last = len(others) if role == "user" else last
            others.append(text)
    last = len(others) - 1 if last is None else last
    system = "\n".join(instructions)
    return Conversation(
        last_user=others[last] if others else system,
        system=system,
        earlier=others[:last],
        tool_count=tools,
        image_count=images,
        wants_json=wants_json,
    )


def reuse_of(turns: Turns, known: Sequence[Prefix], tool_tokens: int, tool_choice: msgspec.Raw | bytes) -> Reuse | None:
    """`known` are the prompt's prefixes; None if there are no turns."""
    if not known:
        return None
    first = known[0][1]
    return Reuse(
        first_turn_tokens=first,
        beginning_tokens=first + tool_tokens if turns[0][0] in INSTRUCTIONS else 0,
        opens_tool_use=bool(tool_tokens)
        and bytes(tool_choice) in FREE_CHOICE
        and all(role == "user" or role in INSTRUCTIONS for role, _ in turns),
    )


def prefixes(turns: Turns, tools: Sequence[msgspec.Raw]) -> tuple[Prefix, ...]:
    """Fingerprints by which the conversation's next turn will be recognised."""
    return prefixes_of(turns, map(bytes, tools))
