"""For `breakeven doctor --ask`: asks each backend for its models with each key, which costs nothing."""

import asyncio
import os
from collections.abc import Collection, Iterator, Mapping, Sequence

from backends.model_lists import ListsModels, ModelList
from backends.protocol import Backend, BackendHealth
from gateway.cli.doctor.finding import Finding
from gateway.composition.deployment import Deployment
from gateway.config.providers import hosted_from_environment
from gateway.config.settings import LOCAL_BACKEND

TOLD_MODELS = 5
TOO_WIDE = "correct `context_window` in rules.yaml: prompts are sent there that it refuses"
NO_LOAD = (
    "start it so that it reports its load (SGLang: `--enable-metrics`, llama.cpp: `--metrics`), or leave `health_from` "
    "out, as behind a router that has no such page"
)
CORRECT = "correct `base_url` or the key, then `breakeven doctor --ask`"


def ask_backends(deployment: Deployment) -> Sequence[Finding]:
    """Whether each configured backend answers, accepts its keys, has the models that rules use and reports its load, if
    `health_from` has it asked. Our own engine is not asked: the gateway watches it itself."""
    adapters = {
        name: one for name, one in deployment.table.adapters.items() if not one.is_simulated and name != LOCAL_BACKEND
    }
    watched = {name for name, block in deployment.settings.backends.items() if block.health_from != "models"}
    found = asyncio.run(_ask(adapters, watched))
    return [
        told
        for name, (lists, health) in zip(adapters, found, strict=True)
        for told in (*_told(name, lists, deployment), *_told_of_load(name, lists, health))
    ]


async def _ask(
    adapters: Mapping[str, Backend], watched: Collection[str]
) -> Sequence[tuple[Sequence[ModelList], BackendHealth | None]]:
    async def one(name: str, adapter: Backend) -> tuple[Sequence[ModelList], BackendHealth | None]:
        try:
            lists = await adapter.model_lists() if isinstance(adapter, ListsModels) else ()
            return lists, await adapter.health() if name in watched else None
        finally:
            await adapter.aclose()

    return await asyncio.gather(*(one(name, adapter) for name, adapter in adapters.items()))


def _told_of_load(name: str, lists: Sequence[ModelList], health: BackendHealth | None) -> Iterator[Finding]:
    """The gateway asks a backend nothing that does not report its load where it is to."""
    if health is not None and not health.is_healthy and not all(found.problem for found in lists):
        yield Finding(f"backend {name}", False, f"counts as down by its `health_from`: {health.detail}", NO_LOAD)


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
