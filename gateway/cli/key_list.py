"""`breakeven keys list`: all keys, with what they may use and when they were last used."""

import json
from collections.abc import Mapping
from typing import Any

from rich.table import Column, Table

from gateway.access.rotation import OldSecret, Rotation
from gateway.api.admin.key_views import key_fields
from gateway.cli.options import AsJsonList
from gateway.cli.show_table import show_table
from gateway.cli.state import State, ask
from gateway.clock import now_us
from gateway.instants import DAY_US, moment_of
from gateway.limits.openings import by_budget
from gateway.limits.values import WindowName, window_id
from gateway.money import plain, usd
from gateway.storage.sql.openings import SqlOpenings
from gateway.stores import LAST_DAYS, ListedKey

AS_THE_API_SAYS = ("id", "name", "role", "team", "project", "tags", "allowed_models", "keeps_bodies", "limits")


def list_keys(as_json: AsJsonList = False) -> None:
    """All keys, without their secrets."""
    rows = ask(_list)
    if as_json:
        print(json.dumps(rows))
        return
    table = Table(Column("id", no_wrap=True), "name", "role", "team", "project", "created", "state", "last request")
    for row in rows:
        whose = (str(row[column] or "") for column in ("id", "name", "role", "team", "project"))
        last = row["last_request_on"] or f"none in {LAST_DAYS} days"
        came = f"{_readable(row['created'])}{', from LiteLLM' if row['taken_over_from'] else ''}"
        table.add_row(*whose, came, str(row["state"]), last)
    show_table(table)
    for row in rows:
        if row["state"] == "active" and row["secret"] != "ours":
            print(f"{row['id']} {row['name']}: its secret is the one that it had at LiteLLM")
        if row["state"] == "active" and row["taken_over_usd"] is not None:
            when = {"day": "today", "month": "this month"}[row["limits"].get("budget_window", "month")]
            print(f"{row['id']} {row['name']}: of its budget ${row['taken_over_usd']} was spent {when} at LiteLLM")
        if row["state"] == "active":
            for old in row["old_secrets"]:
                last_used = "not used since" if old["last_used"] is None else f"last used {_readable(old['last_used'])}"
                print(f"{row['id']} {row['name']}: an older secret works until {_readable(old['ends'])}, {last_used}")


async def _list(state: State) -> list[dict[str, Any]]:
    limits, rotations = await state.keys.limits(), await state.secrets.rotations()
    last_days, litellms = await state.keys.last_days(), await state.keys.litellms()
    listed = {one.record.id: one for one in await state.keys.list()}
    windows = {window: window_id(window, now_us()) for window in WindowName.__args__}
    opened = by_budget(await SqlOpenings(state.database).of(windows.values()))
    rows = [_row(one, limits.get(key, {}), rotations.get(key), last_days.get(key)) for key, one in listed.items()]
    for row in rows:  # a rotation replaces LiteLLM's secret by ours
        row["secret"] = "LiteLLM's" if row["id"] in litellms and row["id"] not in rotations else "ours"
        row["taken_over_from"] = "LiteLLM" if row["id"] in litellms else None
        window = windows[row["limits"].get("budget_window", "month")]
        opening = opened.get(("key", row["id"], window)) if "budget_usd" in row["limits"] else None
        row["taken_over_usd"] = plain(usd(opening)) if opening else None
    return rows


def _row(
    listed: ListedKey, limits: Mapping[str, Any], rotation: Rotation | None, last_day: int | None
) -> dict[str, Any]:
    record, now = listed.record, now_us()
    is_expired = record.expires_at_us is not None and record.expires_at_us <= now
    fields = key_fields(listed, limits)
    return {
        **{name: fields[name] for name in AS_THE_API_SAYS},
        "created": _moment(listed.created_at_us),
        "expires": None if record.expires_at_us is None else _moment(record.expires_at_us),
        "rotated": None if rotation is None else _moment(rotation.rotated_at_us),
        "old_secrets": [] if rotation is None else [_old(one) for one in rotation.working],
        "last_request_on": None if last_day is None else _moment(last_day * DAY_US)[:10],
        "state": "revoked" if record.revoked_at_us is not None else "expired" if is_expired else "active",
    }


def _old(one: OldSecret) -> dict[str, str | None]:
    last_used = None if one.last_used_at_us is None else _moment(one.last_used_at_us)
    return {"replaced": _moment(one.replaced_at_us), "ends": _moment(one.ends_at_us), "last_used": last_used}


def _moment(at_us: int) -> str:
    return moment_of(at_us).isoformat(timespec="seconds")


def _readable(at: str) -> str:
    return f"{at[:10]} {at[11:19]} UTC"
