"""`breakeven keys rotate` and `end-overlap`, and how a key is named on the command line."""

import json
import re

import typer

from gateway.access.rotation import DEFAULT_OVERLAP_SECONDS, MOST_OVERLAP_SECONDS, NewSecret
from gateway.cli.state import AUTHOR, State, ask
from gateway.errors import NotFound
from gateway.instants import moment_of

NAMED = "The key's id, or its name if only one key that is not revoked has it."
UNITS = {"s": 1, "m": 60, "h": 3600, "d": 86_400}
LENGTH = re.compile(r"(\d{1,9})([smhd])")


def rotate(
    key: str = typer.Argument(..., help=NAMED),
    overlap: str = typer.Option(
        f"{DEFAULT_OVERLAP_SECONDS // 3600}h",
        help="How long older secrets keep working: 90m, 24h, 7d; 0 ends them now.",
    ),
    as_json: bool = typer.Option(False, "--json", help='Print {"id", "key", "old_secrets_end"}.'),
) -> None:
    """Give a key a new secret, printed this once; it stays the same key. Older ones work until the overlap ends."""
    seconds = _seconds(overlap)
    key_id, made = ask(lambda state: _rotate(state, key, seconds))
    ends = moment_of(made.ends_at_us)
    if as_json:
        print(json.dumps({"id": key_id, "key": made.secret, "old_secrets_end": ends.isoformat(timespec="seconds")}))
        return
    older = f"until {ends:%Y-%m-%d %H:%M} UTC" if seconds else "no more"
    print(f"Key {key_id} has a new secret; older ones work {older}. Shown this once:\n{made.secret}")


def end_overlap(key: str = typer.Argument(..., help=NAMED)) -> None:
    """Stop a key's older secrets now. Every worker refuses them within a second; the newest still works."""
    key_id = ask(lambda state: _end_overlap(state, key))
    print(f"Key {key_id} now works only with its newest secret.")


async def key_id_of(state: State, named: str) -> str:
    """Raises NotFound if no key has this id or name, and BadParameter if several keys have this name."""
    records = [one.record for one in await state.keys.list()]
    if any(one.id == named for one in records):
        return named
    found = [one.id for one in records if one.name == named and one.revoked_at_us is None]
    if len(found) > 1:
        raise typer.BadParameter(f"{len(found)} keys are called {named!r}; say which by its id: {', '.join(found)}")
    if not found:
        raise NotFound(f"There is no key with the id or name {named!r}; `breakeven keys list` shows them.")
    return found[0]


async def _rotate(state: State, named: str, seconds: int) -> tuple[str, NewSecret]:
    key_id = await key_id_of(state, named)
    made = await state.secrets.rotate(key_id, overlap_seconds=seconds, author=AUTHOR)
    assert made is not None, "keys are never deleted"
    return key_id, made


async def _end_overlap(state: State, named: str) -> str:
    key_id = await key_id_of(state, named)
    await state.secrets.end_overlap(key_id, author=AUTHOR)
    return key_id


def _seconds(text: str) -> int:
    """Raises BadParameter."""
    found = LENGTH.fullmatch(text.strip())
    seconds = 0 if text.strip() == "0" else int(found[1]) * UNITS[found[2]] if found else None
    if seconds is None or seconds > MOST_OVERLAP_SECONDS:
        most = MOST_OVERLAP_SECONDS // UNITS["d"]
        raise typer.BadParameter(
            f"{text!r} is not a time such as 90m, 24h or 7d, at most {most}d", param_hint="--overlap"
        )
    return seconds
