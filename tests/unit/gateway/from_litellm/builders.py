"""Short LiteLLM files, and what they are translated to."""

from collections.abc import Mapping, Sequence
from typing import Any

import yaml

from gateway.config.providers import load_providers
from gateway.from_litellm.config_file import parse_fields, read_config
from gateway.from_litellm.draft import Draft, draft

PRICED = frozenset({"openai/gpt-4o", "openai/gpt-5.4-mini", "together_ai/glm"})
SINCE = "2026-11-01"


def entry(name: str, model: str, info: Mapping[str, Any] | None = None, **params: Any) -> dict[str, Any]:
    """One entry of `model_list`."""
    return {"model_name": name, "litellm_params": {"model": model, **params}, "model_info": dict(info or {})}


def drafted(
    *entries: Mapping[str, Any],
    environ: Mapping[str, str] | None = None,
    known: Mapping[str, Mapping[str, Any]] | None = None,
    **sections: Any,
) -> Draft:
    text = yaml.safe_dump({"model_list": list(entries), **sections})
    return draft(
        read_config(parse_fields(text, file="config.yaml"), file="config.yaml"),
        providers=load_providers(),
        environ=environ or {},
        price_of=PRICED.__contains__,
        known=known or {},
        since=SINCE,
    )


def rules(made: Draft) -> dict[str, tuple[Sequence[str], Sequence[str], str]]:
    """Each rule but the last: its name, and the models it matches, chooses from, and by what."""
    return {
        one["name"]: (one["when"]["model"], one["choose"]["from"], one["choose"]["by"])
        for one in made.rules["rules"][:-1]
    }
