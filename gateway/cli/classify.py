"""`breakeven classify`: difficulty, quality per model and uncertainty for a file of prompts, offline."""

import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import typer

from classifier.artefact import ArtefactError
from classifier.batch import classify_file
from classifier.load import load_artefact
from classifier.names import canonical
from classifier.prompt_lines import STANDARD, PromptFileError
from classifier.protocol import ModelProfile
from gateway.counted import counted
from gateway.errors import ConfigurationError

USUAL_MODELS = (
    "gpt-4o",
    "gpt-4o-mini",
    "llama-3.1-70b-instruct",
    "llama-3.1-8b-instruct",
    "mixtral-8x7b-instruct-v0.1",
    "smollm2-135m-instruct",
)


def command(
    jsonl: Annotated[
        Path, typer.Option(help="Prompts, one JSON object a line: `id`, `prompt`; `-` for standard input.")
    ],
    out: Annotated[Path, typer.Option(help="Where to write one line per prompt; `-` for standard output.")],
    artefact: Annotated[Path | None, typer.Option(help="Folder of a trained or adapted artefact.")] = None,
    model: Annotated[list[str] | None, typer.Option(help="A model to predict for; may be repeated.")] = None,
    pair: Annotated[tuple[str, str] | None, typer.Option(help="STRONG WEAK: adds `route_score` and the gap.")] = None,
) -> None:
    """Run the data path's classifier over a file of prompts."""
    started = time.perf_counter()
    name = "standard output" if out == STANDARD else str(out)
    if pair:
        require_two_models(pair)
    for path, stream in ((jsonl, sys.stdin), (out, sys.stdout)):
        if path == STANDARD and not stream:
            raise ConfigurationError("standard input or output is closed: name a file instead of -")
    try:
        loaded = load_artefact(artefact)
        names = dict.fromkeys([*(pair or ()), *(model or (() if pair else loaded.adapted_to or USUAL_MODELS))])
        bound = loaded.bind([ModelProfile(name) for name in names])
        count = classify_file(jsonl, out, bound, pair=pair)
    except BrokenPipeError:
        raise  # who reads the lines has enough of them
    except OSError as error:  # one without a name comes of writing
        unfinished = error.filename is None or str(error.filename).endswith(".part")
        raise ConfigurationError(f"{name if unfinished else error.filename}: {error.strerror}") from error
    except (ArtefactError, PromptFileError) as error:
        raise ConfigurationError(str(error)) from error
    took = f"{counted(count, 'prompt')} classified in {time.perf_counter() - started:.1f} s by {bound.version}: {name}"
    # If `out` is standard output or a pipe, a program reads the lines: the message must not be among them.
    typer.echo(took + _ranked_by(pair, loaded.adapted_to), err=not out.is_file())


def require_two_models(pair: tuple[str, str]) -> None:
    """Raises ConfigurationError if both names mean one model."""
    if canonical(pair[0]) == canonical(pair[1]):
        raise ConfigurationError(f"--pair: {pair[0]} and {pair[1]} are both {canonical(pair[0])}; name two models")


def _ranked_by(pair: tuple[str, str] | None, labelled: Sequence[str]) -> str:
    """Warns if the artefact has labels, but not of both models of the pair: a name may be misspelt."""
    missing = [name for name in pair or () if canonical(name) not in labelled]
    if not (labelled and missing):
        return ""
    return (
        f"\nroute_score is the difficulty: the artefact has no labels of {' and '.join(missing)}, "
        f"but of {', '.join(labelled)}"
    )
