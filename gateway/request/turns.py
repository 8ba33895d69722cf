"""A body's turns, (role, text) each, as the classifier and the prompt caches see them. Pure; knows no wire format."""

from classifier.protocol import Conversation
from gateway.upstreams.prompt_prefixes import Prefix, prefixes_of

Turns = list[tuple[str, str]]


def conversation_of(turns: Turns, *, tools: int, images: int, wants_json: bool) -> Conversation:
    """What was asked last, and what stands before it."""
    instructions: list[str] = []
    others: list[str] = []
    last = None
    for role, text in turns:
        if role in ("system", "developer"):
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


def prefixes(turns: Turns) -> tuple[Prefix, ...]:
    """By which its next turn will be recognised."""
    return prefixes_of(turns, [len(text) // 4 + 4 for _, text in turns])
