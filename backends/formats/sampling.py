"""Which models refuse how tokens are drawn (`temperature`, `top_p`, ...), and what else goes with that, by their names.

Pure. Names that are not known to be of an older model count as the newest: what providers took away, none gave back.
"""

import re
from functools import cache
from typing import Final

from backends.formats.chat_fields import EFFORTS, untranslatable

CLAUDE_SAMPLING: Final = frozenset({"temperature", "top_p", "top_k"})
OPENAI_SAMPLING: Final = frozenset(
    {"temperature", "top_p", "presence_penalty", "frequency_penalty", "logprobs", "top_logprobs"}
)
_OLDER_CLAUDE: Final = re.compile(
    r"claude-(?:[1-3](?!\d)|v\d|instant|(?:opus|sonnet|haiku)-(?:[1-3](?!\d)|4(?![-.]?[7-9])))"
)
"""To Opus 4.6, Sonnet 4.6 and Haiku 4.5; Anthropic's page on migrating to Opus 4.7 and its API's reference."""
_GPT: Final = re.compile(r"gpt-(\d+)(?:\.(\d+))?(?:-(.*))?")
_O_SERIES: Final = re.compile(r"o\d")
_ALWAYS_THINKS: Final = re.compile(r".*-pro\b|gpt-6-astra|gpt-6\.1-sol")
"""Do not know the effort `none`; OpenAI's deployment checklist, and litellm 1.106.2's map."""
_RESPONSES_ALONE: Final = re.compile(
    r"(?:gpt-\d|o\d).*-(?:pro|codex|deep-research)\b|codex-mini|computer-use-preview|gpt-daybreak-|grok-.*-multi-agent"
)
"""Answer no chat completions; `supported_endpoints` of litellm 1.106.2's map. All of them think."""


def is_older_claude(model: str) -> bool:
    """Whether a model of Anthropic's format takes CLAUDE_SAMPLING, and a budget for thinking. Others' models behind
    that format do."""
    return "claude" not in model or _OLDER_CLAUDE.search(model) is not None


def answers_responses_alone(model: str) -> bool:
    """Whether a model of OpenAI's, or of xAI's, is known to answer the Responses API and no chats."""
    return _RESPONSES_ALONE.match(model) is not None


def thinks(model: str, effort: str | None) -> bool:
    """Whether a model of OpenAI's thinks at this effort, and so refuses OPENAI_SAMPLING. Where none is asked, those
    from 5.1 to 5.4 do not, but for Codex."""
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
    """What a model of OpenAI's takes for this effort: the least that it knows and that is no less, else its most. To
    GPT-4 none knows any."""
    if not thinks(model, "high"):
        return effort if _version(model) is None else None
    if effort not in EFFORTS:
        return effort
    known = _known_efforts(model, in_chat=in_chat)
    enough = EFFORTS[EFFORTS.index(effort) :]
    return next((one for one in enough if one in known), known[-1])


def _known_efforts(model: str, *, in_chat: bool) -> tuple[str, ...]:
    """From the least to the most: before 5.1 none knows `none`, since then none knows `minimal`, before 5.2 none
    `xhigh`, and `max` is for responses alone. As OpenAI's pages on its models, and litellm 1.106.2's map, have them."""
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
    """Whether a model of OpenAI's does at this effort: those from 5.4 on do only where they do not think."""
    version = _version(model)
    return version is None or version < (5, 4) or not thinks(model, effort)


def effort_for_functions(model: str, effort: str | None) -> str | None:
    """The effort at which a chat with functions may be asked of a model of OpenAI's: those from 5.4 on call functions
    in chats only where they do not think. Raises Untranslatable for one that always thinks."""
    if calls_functions_in_chats(model, effort):
        return effort
    if _ALWAYS_THINKS.match(model):
        raise untranslatable("tools", f"{model} calls functions over /v1/responses alone; ask there, or another model")
    return "none"


def _order(model: str) -> tuple[int, int]:
    """The o-series came between the fourth and the fifth."""
    return _version(model) or (4, 0)


@cache
def _version(model: str) -> tuple[int, int] | None:
    """Of a GPT; None of anything else, and of those made for ChatGPT, which do not think."""
    found = _GPT.match(model)
    if found is None or "chat" in (found[3] or ""):
        return None
    return int(found[1]), int(found[2] or 0)
