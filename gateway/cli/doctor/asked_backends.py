"""For `breakeven doctor --ask`: asks each backend for its models with each key, which costs nothing."""

import asyncio
import os
from collections.abc import Iterator, Sequence

from backends.model_lists import ListsModels, ModelList
from backends.protocol import Backend
from gateway.cli.doctor.finding import Finding
from gateway.composition.deployment import Deployment
from gateway.config.providers import hosted_from_environment
from gateway.config.settings import LOCAL_BACKEND

TOLD_MODELS = 5
TOO_WIDE = "correct `context_window` in rules.yaml: prompts are sent there that it refuses"
CORRECT = "correct `base_url` or the key, then `breakeven doctor --ask`"


def ask_backends(deployment: Deployment) -> Sequence[Finding]:
    """Whether each configured backend answers, accepts its keys and has the models that rules use. Our own engine is
    not asked: the gateway watches it itself."""
    adapters = {
        name: one for name, one in deployment.table.adapters.items() if not one.is_simulated and name != LOCAL_BACKEND
    }
    found = asyncio.run(_ask(list(adapters.values())))
    return [told for (name, lists) in zip(adapters, found, strict=True) for told in _told(name, lists, deployment)]


async def _ask(adapters: Sequence[Backend]) -> Sequence[Sequence[ModelList]]:
    async def one(adapter: Backend) -> Sequence[ModelList]:
        try:
            return await adapter.model_lists() if isinstance(adapter, ListsModels) else ()
        finally:
            await adapter.aclose()

    return await asyncio.gather(*map(one, adapters))


def _told(name: str, lists: Sequence[ModelList], deployment: Deployment) -> Iterator[Finding]:
    if not lists:
        yield Finding(f"backend {name}", False, "not asked: litellm offers no list of models")
    used = {
        known: model for known, model in deployment.catalogue.models(deployment.rules).items() if model.backend == name
    }
    wanted = sorted({model.upstream_model for model in used.values()})
    for found in lists:
        title = f"backend {name}" + (f" ({found.key})" if found.key else "")
        if found.problem:
            yield Finding(title, False, found.problem + _variables(name, found, deployment), CORRECT)
            continue
        missing = [model for model in wanted if model.removeprefix("models/") not in found.models]
        if missing:
            more = f" and {len(missing) - TOLD_MODELS} more" if len(missing) > TOLD_MODELS else ""
            detail = (
                f"answers, but its list of models ({len(found.models)}) lacks {', '.join(missing[:TOLD_MODELS])}{more}"
                ": a name is wrong, or this key may not use it, or it is an alias that the list leaves out"
            )
            yield Finding(title, False, detail)  # it may serve them all the same
            continue
        wider = [
            f"{known} has a context_window of {model.context_window:,} and is served with {window:,} tokens"
            for known, model in used.items()
            if (window := found.windows.get(model.upstream_model)) is not None and model.context_window > window
        ]
        if wider:
            yield Finding(title, False, f"answers, but {'; '.join(wider[:TOLD_MODELS])}", TOO_WIDE)
        else:
            key = "; it lists them without a key too, so the key is not tried" if found.is_public else ""
            yield Finding(title, True, f"answers, and has {', '.join(wanted) or 'no model that rules use'}{key}")


def _variables(name: str, found: ModelList, deployment: Deployment) -> str:
    """Where its key is, if that is what is wrong."""
    if not found.is_key_refused:
        return ""
    if found.key:
        variables = [found.key]
    elif (block := deployment.settings.backends.get(name)) is not None:
        variables = [key.env for key in block.wanted_keys]
    else:
        variables = [one.key_env for one in hosted_from_environment(os.environ) if one.name == name]
    return f" (the key is in {', '.join(variables)})" if variables else "; none is configured"
