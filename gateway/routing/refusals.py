"""Why no model can serve a request, as the error for its caller. Pure; weighs nothing itself."""

from collections.abc import Container, Iterable, Mapping, Sequence
from typing import Final

from backends.endpoints.messages_events import too_long
from gateway.errors import ContextTooLong, ModelsPaused, NoCapableModel, NoEligibleModel
from gateway.ledger.entry import Facts
from gateway.routing.rules import RERANK
from gateway.routing.snapshot import LOADING_SLOTS, PAUSED_SLOTS, REFUSED_SLOTS

LACKS: Final = "does not support"
"""Prefix of reasons that no waiting resolves."""
TOO_LONG: Final = "do not fit its window"
"""Part of the reason of candidates with too small a context window."""
LOADING: Final = "its engine is still loading"
"""Reason of a candidate that will be available soon."""
PAUSED: Final = "its backend is full or limits our rate, and asked us to wait"
"""Reason of a candidate that accepts calls again after its Retry-After."""
DOWN_BECAUSE: Final = {
    LOADING_SLOTS: LOADING,
    REFUSED_SLOTS: "its provider refuses our key, see `breakeven doctor`",
    PAUSED_SLOTS: PAUSED,
}
"""Why a backend accepts no calls, by the number in place of its free slots; otherwise it is down."""
NONE_THERE: Final = (
    "none of its models is available: their backends are switched off or lack a key, and `breakeven doctor` says which"
)
ABLE: Final = "Set a provider's key to add models that can, or correct the `supports` of your own models in rules.yaml."
PROMPTS: Final = {
    "responses": "input",
    "generate_content": "contents",
    "embeddings": "input",
    "moderations": "input",
    "rerank": "documents",
    "audio.speech": "input",
    "audio.transcriptions": "file",
    "audio.translations": "file",
    "completions": "prompt",
    "images.generations": "prompt",
    "images.edits": "prompt",
}
"""The request field of the prompt, where it is not `messages`."""
LIMITS: Final = {"responses": "max_output_tokens", "generate_content": "maxOutputTokens"}
"""The request field that limits the answer, where it is not `max_tokens`."""
AGAIN: Final = "Try again in a few seconds; if the engine does not come up, engine.log says why."
MOST_LISTED: Final = 20


def refusal(
    operation: str, facts: Facts, rule: str, reasons: Mapping[str, str], *, widest: int
) -> NoEligibleModel | ContextTooLong:
    """The error for candidates that were weighed, by name; `widest` is the largest of their context windows."""
    if all(TOO_LONG in reason for reason in reasons.values()):
        if operation == "messages":
            return ContextTooLong(too_long(facts.window_tokens, facts.max_output_tokens or 1, widest))
        limit = LIMITS.get(operation, "max_tokens")
        return ContextTooLong(
            f"This prompt is too long: about {facts.window_tokens:,} tokens"  # agents look for these words
            + (f", and {facts.max_output_tokens:,} more for the answer" if facts.max_output_tokens else "")
            + f"; the widest model allowed here takes {widest:,}. Shorten the prompt"
            + (f" or lower {limit}." if facts.max_output_tokens else "."),
            param=PROMPTS.get(operation, "messages"),
        )
    if all(reason.startswith(LACKS) for reason in reasons.values()):
        return NoCapableModel(rule, reasons, advice=ABLE)
    if LOADING in reasons.values():
        return NoEligibleModel(rule, reasons, advice=AGAIN)
    if PAUSED in reasons.values():
        return ModelsPaused(rule, reasons)
    return NoEligibleModel(rule, reasons)


def other_use(specialty: str | None) -> str:
    """What a candidate is for, when it was asked for something else; None means that it writes text."""
    return "it writes text" if specialty is None else f"it is for {specialty} only"


def none_does(specialty: str) -> str:
    """Why a rule has no candidate for something that only specialised models do."""
    keys = "COHERE_API_KEY, JINA_API_KEY and VOYAGE_API_KEY bring" if specialty == RERANK else "OPENAI_API_KEY brings"
    return (
        f"none of its models is for {specialty}; set the key of a provider that has one ({keys} some), "
        f"or name one under `models` in rules.yaml, with `supports: [{specialty}]`"
    )


def refusal_without_candidates(
    rule: str, offered: Sequence[str], allowed: Iterable[str] | None, known: Container[str]
) -> NoEligibleModel:
    """`offered` is what the rule has for any key, `allowed` what this key may use; the two do not overlap."""
    if not offered or allowed is None:
        return NoEligibleModel(rule, {}, why_none=NONE_THERE)
    own = sorted(allowed)
    missing = "" if any(name in known for name in own) else ", none of which exists here"
    why = (
        f"this key may use only {_listed(own) or 'no model'}{missing if own else ''}, and the rule offers only "
        f"{_listed(offered)}; change the key's models or the rule"
    )
    return NoCapableModel(rule, {}, why_none=why)


def _listed(names: Sequence[str]) -> str:
    return ", ".join(names[:MOST_LISTED]) + (", ..." if len(names) > MOST_LISTED else "")
