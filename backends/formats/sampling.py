"""Which models reject sampling parameters (`temperature`, `top_p`, ...), and which reasoning efforts each one takes.

Pure; decides by the model's name. An unknown name is treated as the newest model: no provider has ever brought back a
parameter that it removed.
"""

import re
from functools import cache
from typing import Final

from backends.formats.chat_fields import EFFORTS, untranslatable
from backends.formats.json_objects import Fields

CLAUDE_SAMPLING: Final = frozenset({"temperature", "top_p", "top_k"})
OPENAI_SAMPLING: Final = frozenset(
    {"temperature", "top_p", "presence_penalty", "frequency_penalty", "logprobs", "top_logprobs"}
)
_OLDER_CLAUDE: Final = re.compile(
    r"claude-(?:[1-3](?!\d)|v\d|instant|(?:opus|sonnet|haiku)-(?:[1-3](?!\d)|4(?![-.]?[7-9])))"
)
"""Up to Opus 4.6, Sonnet 4.6 and Haiku 4.5. Source: Anthropic's Opus 4.7 migration guide and API reference."""
LEAST_BUDGET: Final = 1024
"""Of tokens that a Claude may think with."""
_WITH_EFFORTS: Final = re.compile(r"claude-(?:opus-4[-.]?(5)|(?:opus|sonnet)-4[-.]?6)")
"""Older Claude models that take an effort: the first one none above `high`, the others `max` but not `xhigh`."""
_WITH_BUDGETS: Final = re.compile(r"claude-(?:3[-.]7|(?:opus|sonnet|haiku)-4(?![-.]?[6-9]))")
"""Claude models that think only with a budget. Those after them choose their own."""
_CLAUDE_BUDGETS: Final = {"low": 1_024, "medium": 4_096, "high": 16_384, "xhigh": 16_384, "max": 16_384}
"""From the least that Claude accepts to what leaves half of Opus 4.1's 32,000 tokens for the answer."""
_LEVELS: Final = {
    "none": "minimal",
    "minimal": "minimal",
    "low": "low",
    "medium": "medium",
    "high": "high",
    "xhigh": "high",
    "max": "high",
}
_BUDGETS: Final = {"minimal": 512, "low": 1_024, "medium": 8_192, "high": 24_576}
"""As Google's OpenAI-compatible endpoint maps efforts; the first is the least that each Gemini 2.5 accepts."""
_WITH_MINIMAL: Final = re.compile(r"gemini-3(?:\.[0-6])?-flash")
"""Gemini models with the level `minimal`: no Pro, and no Flash since 3.7. Source: Google's page on thinking."""
_GPT: Final = re.compile(r"gpt-(\d+)(?:\.(\d+))?(?:-(.*))?")
_O_SERIES: Final = re.compile(r"o\d")
_ALWAYS_THINKS: Final = re.compile(r".*-pro\b|gpt-6-(?:astra|rosalind)|gpt-6\.1-sol")
"""Models without the effort `none`. Source: OpenAI's deployment checklist, litellm 1.110.2's model map."""
_RESPONSES_ALONE: Final = re.compile(
    r"(?:gpt-\d|o\d).*-(?:pro|codex|deep-research)\b|codex-mini|computer-use-preview|gpt-daybreak-|grok-.*-multi-agent"
)
"""Models without chat completions; all of them reason. Source: `supported_endpoints` in litellm 1.106.2's model map."""


def is_claude(model: str) -> bool:
    """Whether a model behind Anthropic's format refuses temperature together with top_p, as all since Opus 4.1 do."""
    return "claude" in model


def is_older_claude(model: str) -> bool:
    """Whether a model behind Anthropic's format takes CLAUDE_SAMPLING and a thinking budget. Models that are not Claude
    do."""
    return not is_claude(model) or _OLDER_CLAUDE.search(model) is not None


def claude_effort(model: str, effort: str) -> str | None:
    """The effort to send a model behind Anthropic's format: the lowest one it supports that is not below `effort`, else
    its highest; None for a Claude without efforts. Source: Anthropic's page on effort and litellm 1.106.2's map."""
    if not is_claude(model) or not is_older_claude(model):
        return effort
    found = _WITH_EFFORTS.search(model)
    if found is None:
        return None
    return effort if effort in ("low", "medium", "high") else "high" if found[1] else "max"


def claude_thinking(model: str, effort: str, limit: int | None, *, has_tools: bool) -> Fields | None:
    """The thinking that an effort asks of a Claude up to 4.6; None if that is none. A budget is at most half the limit.
    None goes with tools: it would have to be left out after each result, and Claude's cache begins anew when it
    changes."""
    if effort in ("none", "minimal"):
        return None
    if _WITH_BUDGETS.search(model) is None:
        return {"type": "adaptive"} if _WITH_EFFORTS.search(model) else None
    budget = _CLAUDE_BUDGETS.get(effort, 0)
    if limit:
        budget = min(budget, limit // 2)
    return None if has_tools or budget < LEAST_BUDGET else {"type": "enabled", "budget_tokens": budget}


def gemini_thinking(model: str, effort: str) -> Fields | None:
    """The thinking to ask of a model in Gemini's format; None for an effort that nobody knows. 2.5 refuses levels, and
    others the lowest. An effort asks to see the thinking, as elsewhere; one that asks for none or little does not."""
    level = _LEVELS.get(effort)
    if level is None:
        return None
    shown: Fields = {} if level == "minimal" else {"includeThoughts": True}
    if "gemini-2.5" in model:
        return {"thinkingBudget": _BUDGETS[level]} | shown
    return {"thinkingLevel": "low" if level == "minimal" and not _WITH_MINIMAL.search(model) else level} | shown


def answers_responses_alone(model: str) -> bool:
    """Whether an OpenAI or xAI model is known to serve the Responses API only, and no chat completions."""
    return _RESPONSES_ALONE.match(model) is not None


def thinks(model: str, effort: str | None) -> bool:
    """Whether an OpenAI model reasons at this effort, and so rejects OPENAI_SAMPLING. Without an effort, models 5.1 to
    5.4 do not reason, except Codex."""
    if _O_SERIES.match(model):
        return True
    version = _version(model)
    if version is None or version < (5, 0):
        return answers_responses_alone(model)
    if _ALWAYS_THINKS.match(model):
        return True
    if effort is None:
        return answers_responses_alone(model) or not (5, 1) <= version <= (5, 4)
    return effort != "none"


def nearest_effort(model: str, effort: str | None, *, in_chat: bool = True) -> str | None:
    """The effort to send an OpenAI model: the lowest one it supports that is not below `effort`, else its highest.
    None for GPT-4 and older, which have no efforts."""
    if not thinks(model, "high"):
        return effort if _version(model) is None else None
    if effort not in EFFORTS:
        return effort
    known = _known_efforts(model, in_chat=in_chat)
    enough = EFFORTS[EFFORTS.index(effort) :]
    return next((one for one in enough if one in known), known[-1])


def _known_efforts(model: str, *, in_chat: bool) -> tuple[str, ...]:
    """From lowest to highest. `none` came with 5.1, which dropped `minimal`; `xhigh` came with 5.2; `max` is only in
    the Responses API. Source: OpenAI's model pages and litellm 1.106.2's model map."""
    version = _order(model)
    most = ("high",) if version < (5, 2) and "-codex-max" not in model else ("high", "xhigh")
    most += ("max",) if version >= (6, 0) and not in_chat else ()
    if _version(model) and "-pro" in model:
        return most if version == (5, 0) else ("medium", *most)
    if "codex" in model:
        least = ("none",) if version >= (5, 3) else ()
    elif version == (5, 0):
        least = ("minimal",)
    else:
        least = () if version < (5, 1) or _ALWAYS_THINKS.match(model) else ("none",)
    return (*least, "low", "medium", *most)


def calls_functions_in_chats(model: str, effort: str | None) -> bool:
    """Whether an OpenAI model calls functions in a chat at this effort: from 5.4 on, only when it does not reason."""
    version = _version(model)
    return version is None or version < (5, 4) or not thinks(model, effort)


def caches_at_breakpoints(model: str) -> bool:
    """Whether an OpenAI model finds a cached prompt only at a breakpoint, as all do since GPT-5.6. Those before refuse
    breakpoints, and find the longest prefix by themselves."""
    return _order(model) >= (5, 6)


def effort_for_functions(model: str, effort: str | None) -> str | None:
    """The effort to send with a chat that has functions: from 5.4 on, OpenAI models call functions in chats only when
    they do not reason. Raises Untranslatable for a model that always reasons."""
    if calls_functions_in_chats(model, effort):
        return effort
    if _ALWAYS_THINKS.match(model):
        raise untranslatable("tools", f"{model} calls functions over /v1/responses alone; ask there, or another model")
    return "none"


def _order(model: str) -> tuple[int, int]:
    """The version to compare by: the o-series ranks between GPT-4 and GPT-5."""
    return _version(model) or (4, 0)


@cache
def _version(model: str) -> tuple[int, int] | None:
    """(major, minor) of a GPT; None for other models, and for ChatGPT's own models, which do not reason."""
    found = _GPT.match(model)
    if found is None or "chat" in (found[3] or ""):
        return None
    return int(found[1]), int(found[2] or 0)
