"""`breakeven from-litellm`: the configuration of LiteLLM's proxy as breakeven.yaml and rules.yaml."""

import json
import os
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Annotated, Any

import typer

from gateway.cli.options import AsJson
from gateway.cli.show_table import visible
from gateway.clock import now_us
from gateway.composition.deployment import load_deployment
from gateway.config.home import Home
from gateway.config.price_files import load_price_book
from gateway.config.price_sources import known_to_litellm
from gateway.config.providers import load_providers
from gateway.config.settings import read_text
from gateway.counted import counted
from gateway.errors import ConfigurationError, StateError
from gateway.extras import install_command
from gateway.from_litellm.config_file import parse_fields, read_config
from gateway.from_litellm.draft import UNKNOWN_WINDOW, Draft, draft
from gateway.from_litellm.files import files_of
from gateway.from_litellm.includes import Merged, merge_includes
from gateway.instants import moment_of
from gateway.whole_file import write_whole


def command(
    config: Annotated[Path, typer.Argument(help="LiteLLM's config.yaml.")],
    out: Annotated[Path, typer.Option(help="Where to write; a directory to start with as BREAKEVEN_HOME.")],
    as_json: AsJson = False,
) -> None:
    """Write breakeven.yaml and rules.yaml that do what LiteLLM's file says, and list what they leave out."""
    book = load_price_book()
    at_us = now_us()
    merged = read_merged(config)
    made = draft(
        read_config(merged.root, file=str(config)),
        providers=load_providers(),
        environ=os.environ,
        price_of=lambda name: book.lookup(name.partition("/")[0], name.partition("/")[2], at_us) is not None,
        known=known_to_litellm(),
        since=f"{moment_of(at_us):%Y-%m-%d}",
        file=str(config),
    )
    made.notes[:0] = merged.notes
    files = files_of(made, config.name)
    try:
        _require_valid(files, made)
    except ConfigurationError as error:
        # the directory that they were tried in is gone
        named = ConfigurationError(error.problem, file=Path(error.file).name, line=error.line, field=error.field)
        raise ConfigurationError(f"says something that cannot be translated: {named}", file=str(config)) from error
    written = _write(out, files)
    if as_json:
        print(
            json.dumps(
                {
                    "files": written,
                    "variables": made.variables,
                    "notes": made.notes,
                    "unsure": made.unsure,
                    "unpriced": made.unpriced,
                }
            )
        )
        return
    _tell(out, written, made)


def read_merged(config: Path) -> Merged:
    """The file merged with every file that it includes. Raises ConfigurationError."""

    def read(location: str) -> Mapping[str, Any]:
        return parse_fields(read_text(Path(location)), file=location)

    root = parse_fields(read_text(config), file=str(config))
    return merge_includes(root, os.path.abspath(config), read=read, is_there=os.path.exists)


def _require_valid(files: Mapping[str, str], made: Draft) -> None:
    """Loads them as a start would, with every variable set. Raises ConfigurationError."""
    with tempfile.TemporaryDirectory() as directory:
        for name, text in files.items():
            (Path(directory) / name).write_text(text, encoding="utf-8")
        load_deployment(Home(Path(directory)), environ=dict.fromkeys(made.variables, "set"))


def _write(out: Path, files: Mapping[str, str]) -> list[str]:
    """Overwrites no other files, but finishes an import that was interrupted. Raises StateError."""
    if there := [name for name, text in files.items() if (out / name).exists() and not _says(out / name, text)]:
        raise StateError(f"{out / there[0]} is there already: name another directory, or move it away")
    try:
        out.mkdir(parents=True, exist_ok=True)
        for name, text in files.items():
            write_whole(out / name, text.encode())
    except OSError as error:
        raise StateError(f"cannot write to {out}: {error.strerror}") from error
    return [str(out / name) for name in files]


def _says(path: Path, text: str) -> bool:
    try:
        return path.read_bytes() == text.encode()
    except OSError:
        return False


def _tell(out: Path, written: list[str], made: Draft) -> None:
    models: Mapping[str, Any] = made.rules["models"]
    print(f"Wrote {', '.join(written)}: {counted(len(models), 'model')}, {counted(len(made.rules['rules']), 'rule')}.")
    for title, lines in (
        ("Set before the start", [f"{name}: {why}" for name, why in made.variables.items()]),
        ("Look at", list(_doubts(made))),
        ("Set elsewhere, or without a counterpart", made.notes),
    ):
        if lines:
            print(f"\n{title}:")
            print("\n".join(f"  {visible(line)}" for line in lines))
    print(f"\nThen: BREAKEVEN_HOME={out} breakeven check, and breakeven serve.")


def _doubts(made: Draft) -> Iterator[str]:
    if made.unsure:
        yield f"the context window, assumed to be {UNKNOWN_WINDOW:,} tokens, of: {', '.join(made.unsure)}"
    if made.unpriced:
        yield (
            f"the price of these, which is unknown: {', '.join(made.unpriced)}. They are booked without a cost until "
            "there is one: priced_as in rules.yaml, an override, or gpu_hour_usd and throughput of a backend"
        )
    if made.needs_litellm:
        yield f"the litellm extra, which some backends need: {install_command('litellm')}"
