"""The engine on a CPU beside llama.cpp and transformers: rounds over all contenders, then ratios and bars.

`--llama-cpp-python PATH` is a Python with llama-cpp-python built for this machine: `python -m venv .venv-llama` and
`CMAKE_ARGS=-DGGML_NATIVE=ON .venv-llama/bin/pip install --no-binary llama-cpp-python llama-cpp-python==0.3.36`. The one
in .venv-llama is the default; without it llama.cpp is left out, with a message. llama-server, which
`python -m benchmarks.engine_cpu.build_llama_server` compiles there, is needed to compare servers over HTTP.
"""

import tempfile
from contextlib import ExitStack
from pathlib import Path
from statistics import median
from typing import Any

import gguf
import torch

from benchmarks.engine_cpu.build_llama_server import TARGET
from benchmarks.engine_cpu.llama_rival import LlamaCpp, requantise
from benchmarks.engine_cpu.ours import Ours
from benchmarks.engine_cpu.servers import Server, llama_server, our_server
from benchmarks.engine_cpu.sizes import Contender, Measure, Sizes
from benchmarks.engine_cpu.transformers_rival import Transformers
from benchmarks.report import Bar, build_report, options, publish
from local_engine.loading.gguf_loader import load_gguf
from local_engine.loading.packages import DEFAULT_MODEL, default_models_directory, fetch_model, print_progress

LLAMA_SERVER = TARGET
LLAMA_PYTHON = Path(__file__).resolve().parents[2] / ".venv-llama" / "bin" / "python"
Rates = dict[str, dict[Measure, list[float]]]


def measure_rounds(contenders: list[Contender], rounds: int) -> Rates:
    """Every measure of every contender in each round, so that a slow minute of the machine affects all of them."""
    rates: Rates = {one.name: {what: [] for what in one.measures} for one in contenders}
    for number in range(rounds):
        for one in contenders:
            print_progress(f"round {number + 1} of {rounds}: {one.name}")
            for what in one.measures:
                rates[one.name][what].append(one.measure(what))
    return rates


def best(rates: Rates, prefix: str, what: Measure) -> float:
    """The best rate of the contenders whose name has this prefix; each counts by the median of its rounds."""
    return max(median(values[what]) for name, values in rates.items() if name.startswith(prefix) and what in values)


def bars(rates: Rates) -> list[Bar]:
    """The targets that this run can judge; our best weight format against theirs."""

    def ours(what: Measure) -> float:
        return best(rates, "ours", what)

    theirs = best(rates, "transformers", "concurrent")
    judged = [
        Bar("8 x (prompt + answer) vs transformers", ours("concurrent") / theirs, 2.0, "least"),
        Bar("warm (80 % cached) vs cold time to first token", ours("warm_speedup"), 4.0, "least"),
    ]
    if any(name.startswith("llama-server") for name in rates):
        served = best(rates, "our server", "served") / best(rates, "llama-server", "served")
        judged.append(Bar("8 x (prompt + answer) over HTTP vs llama-server's best", served, 2.0, "least"))
    if not any(name.startswith("llama.cpp") for name in rates):
        return judged
    q8 = best(rates, "llama.cpp Q8_0", "decode")
    return [
        *judged,
        Bar("prefill vs the best llama.cpp file", ours("prefill") / best(rates, "llama.cpp", "prefill"), 2.0, "least"),
        Bar("decode b1 vs llama.cpp Q8_0", ours("decode") / q8, 0.8, "least"),
        Bar("decode b1 grounded, drafted, vs llama.cpp Q8_0", ours("grounded_drafted") / q8, 1.5, "least"),
        Bar(
            "8 x (prompt + answer) vs llama.cpp's best file in one batch",
            ours("concurrent") / best(rates, "llama.cpp", "concurrent"),
            2.0,
            "least",
        ),
    ]


def llama_files(model: Path, folder: Path) -> dict[str, Path]:
    """The file unchanged, as Q8_0, and as float32."""
    kinds = gguf.GGMLQuantizationType
    requantised = {kind.name: requantise(model, folder / f"{kind.name}.gguf", kind) for kind in (kinds.Q8_0, kinds.F32)}
    return {"Q4_1": model} | requantised


def servers(files: dict[str, Path], binary: Path, model: Path, sizes: Sizes, stack: ExitStack) -> list[Contender]:
    """Ours and llama-server, running until the stack closes; llama-server with and without its flash attention."""
    started: list[Server] = [stack.enter_context(our_server(model, weights, sizes)) for weights in ("float32", "int8")]
    for name in ("Q8_0", "Q4_1"):
        for flash_attention in ("on", "off"):
            rival = llama_server(binary, name, files[name], sizes, flash_attention=flash_attention)
            started.append(stack.enter_context(rival))
    return list(started)


def main() -> None:
    """Measure and print."""
    parser = options(__doc__)
    parser.add_argument("--llama-cpp-python", default=str(LLAMA_PYTHON) if LLAMA_PYTHON.exists() else None)
    parser.add_argument("--llama-server", type=Path, default=LLAMA_SERVER if LLAMA_SERVER.exists() else None)
    parser.add_argument("--models-dir", type=Path, default=None)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--prompt", type=int, default=512, help="prompt tokens")
    parser.add_argument("--output", type=int, default=64, help="answer tokens")
    parser.add_argument("--rounds", type=int, default=3)
    chosen = parser.parse_args()
    sizes = Sizes(chosen.prompt, chosen.output, chosen.threads)
    torch.set_num_threads(sizes.threads)
    model = fetch_model(DEFAULT_MODEL, chosen.models_dir or default_models_directory())
    loaded = load_gguf(model)
    contenders: list[Contender] = [Ours(loaded, "float32", sizes), Ours(loaded, "int8", sizes)]
    contenders.append(Transformers(loaded, sizes))
    results: dict[str, Any] = {"threads": sizes.threads, "prompt_tokens": sizes.prompt, "output_tokens": sizes.output}
    with ExitStack() as stack:
        files: dict[str, Path] = {}
        if chosen.llama_cpp_python or chosen.llama_server:
            files = llama_files(model, Path(stack.enter_context(tempfile.TemporaryDirectory())))
        if chosen.llama_server:
            contenders += servers(files, chosen.llama_server, model, sizes, stack)
        else:
            print_progress("llama-server is left out: python -m benchmarks.engine_cpu.build_llama_server compiles it")
        if chosen.llama_cpp_python:
            for name, path in files.items():
                child = stack.enter_context(LlamaCpp(chosen.llama_cpp_python, name, path, sizes))
                contenders.append(child)
                results["llama_cpp_build"] = child.build
        else:
            print_progress("llama.cpp is left out: name a Python that has it with --llama-cpp-python")
        rates = measure_rounds(contenders, chosen.rounds)
    results["tokens_per_second"] = rates
    publish(build_report("engine_cpu", results, bars(rates)), chosen)


if __name__ == "__main__":
    main()
