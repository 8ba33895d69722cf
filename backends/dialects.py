"""How providers of OpenAI's chat format take it differently from OpenAI: what they call, lack and refuse. Pure data.

docs/translation.md says the same in its table of providers, and a test holds the two together.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Final

from backends.formats.call_ids import CallId, for_mistral, for_openai


@dataclass(frozen=True, slots=True)
class Dialect:
    """`renames` maps a field to the only name that the provider takes for it, as `max_tokens` to
    `max_completion_tokens`. `lacks` are fields that tune an answer and that it refuses, or that it must not be sent;
    `message_lacks` the same inside messages, where clients send back whatever another provider's answer had, and
    `call_lacks` inside the tool calls of one.
    `asks_for_usage` is False where a stream brings its usage unasked and `stream_options` is refused.
    `says_400_of_keys`: as `google_status` has it. `takes_cache_marks`: it knows Anthropic's `cache_control`, because it
    passes chats on to Anthropic; `refuses_cache_marks`: it refuses a chat with one. `thoughts` are the names under
    which it wants to read again what was thought before an answer; `needs_thoughts`: with tool calls it refuses a
    conversation in which an answer lacks one; `needs_signatures`: one in which no call of an answer is signed.
    `call_id` is what it takes for a tool call's id, None where it takes any.
    `takes_developer`: it knows the role `developer`; others are told `system`, which OpenAI takes for the same.
    `efforts` maps a `reasoning_effort` that it refuses to the nearest that it takes; `refuses_effort`: it refuses any
    where the model does not think. `models_think`: its models are OpenAI's, and refuse while they think what
    formats/sampling.py says. `thinkers_lack` is what else is to be left out where the model thinks;
    `names_users_alone`: it refuses the `name` of anybody but a user. `continues_messages`: an answer may go on inside
    the last message.
    """

    renames: Mapping[str, str] = field(default_factory=dict[str, str])
    lacks: frozenset[str] = frozenset()
    message_lacks: frozenset[str] = frozenset()
    call_lacks: frozenset[str] = frozenset()
    asks_for_usage: bool = True
    says_400_of_keys: bool = False
    takes_cache_marks: bool = False
    refuses_cache_marks: bool = False
    thoughts: tuple[str, ...] = ()
    needs_thoughts: bool = False
    needs_signatures: bool = False
    call_id: CallId | None = None
    takes_developer: bool = False
    efforts: Mapping[str, str] = field(default_factory=dict[str, str])
    refuses_effort: bool = False
    models_think: bool = False
    thinkers_lack: frozenset[str] = frozenset()
    names_users_alone: bool = False
    continues_messages: bool = False


PLAIN: Final = Dialect()

_OPENAI_ALONE: Final = frozenset({"prompt_cache_options", "prompt_cache_retention", "safety_identifier", "verbosity"})
ENGINE_THOUGHTS: Final = ("reasoning", "reasoning_content")
"""vLLM reads the one, SGLang the other, and each passes over what it does not know."""
_THOUGHTS: Final = frozenset({"reasoning_content", "reasoning_details"})
_ANSWERED: Final = frozenset({"annotations", "audio", "refusal"})
"""What an answer of OpenAI's has beside its text, null where there is none: many clients send it back as it came."""
_SIGNED: Final = frozenset({"extra_content"})
"""Where Gemini's calls carry their thought signatures."""
_AT_MOST_HIGH: Final[Mapping[str, str]] = {"xhigh": "high", "max": "high"}
_FROM_LOW_TO_HIGH: Final[Mapping[str, str]] = {"minimal": "low", **_AT_MOST_HIGH}
_OLDER_LIMIT: Final[Mapping[str, str]] = {"max_completion_tokens": "max_tokens"}

DIALECTS: Final[Mapping[str, Dialect]] = {
    "openai": Dialect(
        renames={"max_tokens": "max_completion_tokens"},
        refuses_cache_marks=True,
        call_id=for_openai,
        takes_developer=True,
        models_think=True,
    ),
    "cerebras": Dialect(
        lacks=_OPENAI_ALONE | {"metadata", "store"},
        message_lacks=_THOUGHTS | _ANSWERED | {"function_call"},
        call_lacks=_SIGNED,
        refuses_cache_marks=True,
        takes_developer=True,
        efforts=_FROM_LOW_TO_HIGH,
    ),
    "deepseek": Dialect(renames=_OLDER_LIMIT, thoughts=("reasoning_content",), needs_thoughts=True),
    "gemini": Dialect(
        lacks=_OPENAI_ALONE | {"frequency_penalty", "metadata", "presence_penalty", "prompt_cache_key", "store"},
        says_400_of_keys=True,
        efforts=_AT_MOST_HIGH,
        needs_signatures=True,
    ),
    "groq": Dialect(
        lacks=_OPENAI_ALONE | {"logit_bias", "logprobs", "prediction", "prompt_cache_key", "top_logprobs"},
        message_lacks=_THOUGHTS | _ANSWERED,
        call_lacks=_SIGNED,
        refuses_cache_marks=True,
        takes_developer=True,
        efforts=_FROM_LOW_TO_HIGH,
        refuses_effort=True,
    ),
    "mistral": Dialect(
        renames={**_OLDER_LIMIT, "seed": "random_seed"},
        lacks=_OPENAI_ALONE | {"logit_bias", "service_tier", "store", "stream_options", "user"},
        message_lacks=_THOUGHTS | _ANSWERED | {"function_call", "name", "reasoning"},
        call_lacks=_SIGNED,
        asks_for_usage=False,
        refuses_cache_marks=True,
        call_id=for_mistral,
        refuses_effort=True,
    ),
    "ollama": Dialect(renames=_OLDER_LIMIT),
    "fireworks": Dialect(
        lacks=_OPENAI_ALONE | {"store"},
        message_lacks=_ANSWERED | {"reasoning", "reasoning_details"},
        call_lacks=_SIGNED,
        refuses_cache_marks=True,
        efforts=_FROM_LOW_TO_HIGH,
    ),
    "openrouter": Dialect(lacks=frozenset({"models", "preset", "route"}), takes_cache_marks=True),
    "together": Dialect(renames=_OLDER_LIMIT),
    "xai": Dialect(
        lacks=frozenset({"deferred"}),
        refuses_effort=True,
        thinkers_lack=frozenset({"frequency_penalty", "presence_penalty"}),
        names_users_alone=True,
    ),
}
"""By provider. Seen in what these answer 400 and 422 to, and in the request types of their own clients and servers
(Cerebras, Fireworks, Groq, Mistral, Ollama, Together); DeepSeek and Ollama refuse no field and answer without a limit
where they do not know the limit's name. What OpenRouter lacks here would let a caller name other models beside the one
that was decided on; what xAI lacks would let one fetch an answer later that nobody booked."""


def dialect_of(provider: str) -> Dialect:
    """That of OpenAI's format as it is, where the provider is not known to differ."""
    return DIALECTS.get(provider, PLAIN)


def dialect_of_engine(provider: str) -> Dialect:
    """Of vLLM, SGLang or our engine, whoever runs it."""
    return replace(dialect_of(provider), thoughts=ENGINE_THOUGHTS, continues_messages=True)
