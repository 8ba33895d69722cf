"""How close quantised modes stay to float32: perplexity and greedy agreement on one text, ours and llama.cpp's.

`python -m benchmarks.engine_quality --json`. The text is this repository's LICENSE, in windows; every engine reads the
same token ids. Ours in float32 is the reference: the file's own tensors, dequantised.
"""

import math
import tempfile
from dataclasses import asdict, dataclass
from pathlib import Path

import gguf
import torch

from benchmarks.engine_cpu.llama_rival import LlamaCpp, requantise
from benchmarks.engine_cpu.sizes import Sizes
from benchmarks.report import Bar, build_report, options, publish
from local_engine.assembly import assemble
from local_engine.config import EngineConfig, WeightFormat
from local_engine.loading.gguf_loader import load_gguf
from local_engine.loading.packages import DEFAULT_MODEL, default_models_directory, fetch_model, print_progress
from local_engine.loading.weights import LoadedFile
from local_engine.request import Request
from local_engine.sampling.sampling_params import SamplingParams
from local_engine.scheduler import Batch, Row
from local_engine.steps import Runner

ROOT = Path(__file__).resolve().parents[1]
LLAMA_PYTHON = ROOT / ".venv-llama" / "bin" / "python"
WINDOW = 256


@dataclass(frozen=True, slots=True)
class Quality:
    """Perplexity over all predicted tokens, and how often the likeliest token is the same as in float32."""

    perplexity: float
    agreement: float


@dataclass(frozen=True, slots=True)
class Predicted:
    """For every token of each window but the first: its negative log-probability, and the likeliest token there."""

    losses: list[float]
    likeliest: list[int]


def windows_of(loaded: LoadedFile, count: int) -> list[list[int]]:
    """The text's token ids, cut into windows."""
    ids = loaded.tokenizer.encode((ROOT / "LICENSE").read_text(encoding="utf-8"))
    return [ids[start : start + WINDOW] for start in range(0, min(len(ids), count * WINDOW) - WINDOW + 1, WINDOW)]


def predict(runner: Runner, windows: list[list[int]]) -> Predicted:
    """Run each window as a prompt with logits at every position."""
    predicted = Predicted([], [])
    for ids in windows:
        request = Request("window", ids, SamplingParams())
        request.block_ids = list(range(-(-len(ids) // 16)))
        logits = runner.run(Batch((Row(request, 0, len(ids), drafts=len(ids) - 1, needs_logits=True),)))[:-1]
        chosen = torch.tensor(ids[1:])
        losses = -logits.log_softmax(-1).gather(1, chosen[:, None])[:, 0]
        predicted.losses.extend(losses.tolist())
        predicted.likeliest.extend(logits.argmax(-1).tolist())
    return predicted


def our_runner(loaded: LoadedFile, weights: WeightFormat) -> Runner:
    """The runner of an engine with room for one window."""
    config = EngineConfig(weights=weights, context_window=WINDOW, kv_blocks=WINDOW // 16)
    return assemble(loaded, config).runner


def quality(predicted: Predicted, reference: Predicted) -> Quality:
    """Compared with the reference's choices."""
    same = sum(ours == theirs for ours, theirs in zip(predicted.likeliest, reference.likeliest, strict=True))
    mean_loss = sum(predicted.losses) / len(predicted.losses)
    return Quality(round(math.exp(mean_loss), 4), round(same / len(reference.likeliest), 4))


def llama_predictions(python: str, loaded_from: Path, windows: list[list[int]], threads: int) -> dict[str, Predicted]:
    """llama.cpp on the file itself, and on its matrices requantised to Q8_0."""
    kind = gguf.GGMLQuantizationType.Q8_0
    found: dict[str, Predicted] = {}
    with tempfile.TemporaryDirectory() as folder:
        files = {"Q4_1": loaded_from, "Q8_0": requantise(loaded_from, Path(folder) / "q8.gguf", kind)}
        for name, path in files.items():
            print_progress(f"llama.cpp {name}")
            with LlamaCpp(python, name, path, Sizes(WINDOW, 8, threads)) as child:
                pairs = [child.predict(ids) for ids in windows]
            losses = [loss for pair in pairs for loss in pair[0]]
            found[f"llama.cpp {name}"] = Predicted(losses, [token for pair in pairs for token in pair[1]])
    return found


def main() -> None:
    """Measure and print."""
    parser = options(__doc__)
    parser.add_argument("--llama-cpp-python", default=str(LLAMA_PYTHON) if LLAMA_PYTHON.exists() else None)
    parser.add_argument("--models-dir", type=Path, default=None)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--windows", type=int, default=8, help=f"of {WINDOW} tokens")
    chosen = parser.parse_args()
    torch.set_num_threads(chosen.threads)
    path = fetch_model(DEFAULT_MODEL, chosen.models_dir or default_models_directory())
    loaded = load_gguf(path)
    windows = windows_of(loaded, chosen.windows)
    reference = predict(our_runner(loaded, "float32"), windows)
    predictions = {"ours float32": reference, "ours int8": predict(our_runner(loaded, "int8"), windows)}
    if chosen.llama_cpp_python:
        predictions |= llama_predictions(chosen.llama_cpp_python, path, windows, chosen.threads)
    judged = {name: quality(predicted, reference) for name, predicted in predictions.items()}
    increase = judged["ours int8"].perplexity / judged["ours float32"].perplexity - 1
    results = {name: asdict(one) for name, one in judged.items()} | {"tokens": len(reference.losses)}
    bars = [Bar("int8: increase of perplexity over float32", round(increase, 5), 0.02, "most")]
    if "llama.cpp Q4_1" in judged:
        theirs = judged["llama.cpp Q4_1"].perplexity / judged["ours float32"].perplexity - 1
        bars.append(
            Bar("int8's increase against llama.cpp's on the file", round(increase, 5), round(theirs, 5), "most")
        )
    publish(build_report("engine_quality", results, bars), chosen)


if __name__ == "__main__":
    main()
