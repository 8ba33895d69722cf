"""The `breakeven` command: a table of subcommands. Each is the module or folder of its name here, imported only when it
is the one being run."""

import errno
import io
import os
import signal
import sys
from collections.abc import Callable
from importlib import import_module
from typing import cast

import typer

from gateway import __version__
from gateway.errors import BreakevenError
from native import cycles

# By panel of the help: name -> summary. A module exposes `app` (a typer.Typer with subcommands) or `command` (one
# function).
COMMANDS: dict[str, dict[str, str]] = {
    "Start": {
        "serve": "Set up what is missing, then start the engine, the gateway and the web UI.",
        "check": "Validate the configuration and the rules, offline.",
        "doctor": "Say what works on this machine, what does not, and the fix.",
        "migrate": "Bring the database's schema up to date, or back to an older version's.",
        "from-litellm": "Turn the configuration of LiteLLM's proxy into ours.",
        "demo": "Send a file of prompts through the running endpoint and show where they went.",
    },
    "Keys and rules": {
        "keys": "Create, list, change, rotate and revoke API keys.",
        "budgets": "Set, list and remove the monthly budgets of teams, projects and everything.",
        "notices": "Test the webhook for budget notices.",
        "rules": "List, show, diff, apply, activate and roll back routing rules.",
        "replay": "Decide logged traffic again under other rules or models.",
    },
    "Money": {
        "costs": "What was spent, by model, team, project, tag, key, provider, rule or time.",
        "export": "The books as FOCUS 1.3, and every report as CSV or Parquet.",
        "verify": "Check that single requests and corrections add up to what the reports say.",
        "reconcile": "Compare the books with a provider's export or a cloud's bill.",
        "forecast": "Where spend is heading, how a budget fares, which days were unusual.",
        "break-even": "Whether owning the GPU pays at your traffic, and from what volume.",
        "what-if": "What renting GPUs that you do not have would cost.",
        "prices": "List, import, diff and re-apply the dated price catalogue.",
    },
    "Single requests": {
        "logs": "Show ledger entries.",
        "batches": "List the batches of requests that can wait, or cancel one.",
        "retention": "Delete single requests and stored texts past their retention.",
    },
    "Classifier and engine": {
        "train": "Train the classifier, or adapt it to your own labels.",
        "classify": "Run the data path's classifier over a file of prompts.",
        "evaluate": "Grade a live model and write its profile.",
        "classifier": "Learn from feedback, promote a classifier, roll back.",
        "calibrate": "Calibrate a routing threshold to a quality target.",
        "bench": "Measure the throughput of the engine, or of a server of your own.",
    },
}
INTERRUPTED = 128 + signal.SIGINT
NO_ROOM = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EROFS})
NOT_YOURS = "run this as the user that runs `breakeven serve`, or set BREAKEVEN_HOME to a directory of yours"


def _elsewhere() -> None:
    """Stands in the help table for a command that is not the one being run."""


def build(chosen: str | None) -> typer.Typer:
    """The command line with `chosen` imported and all others present by name and summary only."""
    app = typer.Typer(
        name="breakeven",
        help="A cost-aware LLM router and gateway with books that balance.",
        no_args_is_help=True,
        add_completion=False,
        pretty_exceptions_enable=False,
    )

    @app.callback(invoke_without_command=True)
    def root(version: bool = typer.Option(False, "--version", help="Print the version and exit.")) -> None:
        if version:
            print(f"breakeven {__version__}")
            raise typer.Exit

    for panel, commands in COMMANDS.items():
        for name, summary in commands.items():
            if name != chosen:
                app.command(name, help=summary, rich_help_panel=panel)(_elsewhere)
                continue
            loaded = import_module(f"{__name__}.{name.replace('-', '_')}")
            if isinstance(sub := getattr(loaded, "app", None), typer.Typer):
                app.add_typer(sub, name=name, help=sub.info.help or summary)
            else:
                app.command(name)(cast("Callable[..., None]", loaded.command))
    return app


def main() -> None:
    """Run the command line; our own errors and closed files end as one sentence and exit status 1, Ctrl-C with 130."""
    chosen = next((word for word in sys.argv[1:] if not word.startswith("-")), None)
    if isinstance(sys.stdout, io.TextIOWrapper):  # a terminal's encoding may lack ×, and any lacks half a character
        sys.stdout.reconfigure(errors="backslashreplace")
    try:
        with cycles.unsearched():
            command = build(chosen)
        try:
            command()
        finally:
            _flush()
    except BreakevenError as error:
        print(f"breakeven: {error}", file=sys.stderr)
        sys.exit(1)
    except (PermissionError, NotADirectoryError) as error:
        if error.filename is None:
            raise
        print(f"breakeven: {error.filename}: {error.strerror}; {NOT_YOURS}", file=sys.stderr)
        sys.exit(1)
    except FileNotFoundError as error:
        if error.filename is not None:
            raise
        if error.strerror == os.strerror(errno.ENOENT):
            print("breakeven: the current directory was removed: change to another one", file=sys.stderr)
        else:  # of folders for temporary files, in Python's words
            print(f"breakeven: {error.strerror}: make room in one, or set TMPDIR to another", file=sys.stderr)
        sys.exit(1)
    except BrokenPipeError:  # as `breakeven costs | head` ends
        sys.exit(1)
    except OSError as error:
        if error.errno not in NO_ROOM:
            raise
        print(f"breakeven: cannot write {error.filename or 'the output'}: {error.strerror}", file=sys.stderr)
        sys.exit(1)
    except KeyboardInterrupt:
        print("breakeven: interrupted", file=sys.stderr)
        sys.exit(INTERRUPTED)


def _flush() -> None:
    """Output that cannot be written is noticed here; at its own end Python would report it in its own way."""
    output = sys.stdout
    if output is None:  # closed before the start
        return
    try:
        output.flush()
    except OSError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), output.fileno())  # the rest is not tried again
        raise
