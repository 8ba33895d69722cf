"""Suggestions for the fields of a filter: existing names, and ids of keys with their names as labels."""

import asyncio
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from html import escape
from typing import Any

from dashboards.frame import View

MOST = 300
LONGEST = 256
NEWEST_KEYS = 1000
"""How many keys are read: as many as the gateway lists at once. No field shows more than MOST names anyway."""


@dataclass(frozen=True, slots=True)
class Suggestions:
    """By field: values, each with a label that is shown beside it."""

    by_field: Mapping[str, Mapping[str, str]]

    def field(self, name: str, label: str, value: str | None) -> str:
        """A field of a form with its suggestions; an empty one filters nothing."""
        options = "".join(
            f'<option value="{escape(one)}">{escape(said)}</option>'
            for one, said in self.by_field.get(name, {}).items()
        )
        return (
            f'<label class="be-field">{escape(label)}<input name="{name}" value="{escape(value or "")}" '
            f'maxlength="{LONGEST}" placeholder="any" list="known-{name}" autocomplete="off"></label>'
            f'<datalist id="known-{name}">{options}</datalist>'
        )


async def load_suggestions(view: View) -> Suggestions:
    """From the catalogue and the keys, as far as the role may see them."""
    models, keys = await asyncio.gather(
        _listed(view, "models", "catalogue.read"),
        _listed(view, "keys", "keys.read", "team.read", limit=NEWEST_KEYS, last_requests=False),
    )
    return suggested(models, keys)


def suggested(models: Iterable[Mapping[str, Any]], keys: Iterable[Mapping[str, Any]]) -> Suggestions:
    models, keys = list(models), list(keys)
    names = {one["id"]: one["name"] for one in sorted(keys, key=lambda one: str(one["name"]))[:MOST]}
    return Suggestions(
        {
            "model": _plain(one["name"] for one in models),
            "backend": _plain(one["backend"] for one in models),
            "team": _plain(one["team"] for one in keys),
            "project": _plain(one["project"] for one in keys),
            "tag": _plain(tag for one in keys for tag in one["tags"]),
            "key": names,
            "key_id": names,
        }
    )


def _plain(values: Iterable[str | None]) -> Mapping[str, str]:
    return dict.fromkeys(sorted({value for value in values if value})[:MOST], "")


async def _listed(view: View, name: str, *permissions: str, **query: object) -> list[Mapping[str, Any]]:
    if not view.session.may(*permissions):
        return []
    return (await view.gateway.get(f"/admin/v1/{name}", **query))[name]
