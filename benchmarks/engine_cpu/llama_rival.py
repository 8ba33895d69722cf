"""llama.cpp through another Python's llama-cpp-python: one child process per file, one measurement at a time."""

import json
import subprocess
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import gguf

from benchmarks.engine_cpu.sizes import FIRST_ORDINARY_TOKEN, SEQUENCES, VOCABULARY, Measure, Sizes

CHILD = Path(__file__).with_name("llama_child.py")


class LlamaCpp:
    """A Contender. Close it: the child holds the model."""

    measures: tuple[Measure, ...] = ("prefill", "decode", "concurrent")

    def __init__(self, python: str, name: str, path: Path, sizes: Sizes) -> None:
        self.name = f"llama.cpp {name}"
        settings = {
            "path": str(path),
            "threads": sizes.threads,
            "prompt": sizes.prompt,
            "output": sizes.output,
            "sequences": SEQUENCES,
            "tokens": [FIRST_ORDINARY_TOKEN, VOCABULARY],
        }
        command = [python, str(CHILD), json.dumps(settings)]
        self._child = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
        )
        self.build = str(self._read()["build"])

    def measure(self, what: Measure) -> float:
        return float(self._ask(what)["rate"])

    def predict(self, token_ids: list[int]) -> tuple[list[float], list[int]]:
        """For every token but the first, its negative log-probability and the likeliest token at its place."""
        answer = self._ask(json.dumps(token_ids))
        return answer["losses"], answer["likeliest"]

    def _ask(self, line: str) -> dict[str, Any]:
        assert self._child.stdin is not None
        self._child.stdin.write(line + "\n")
        self._child.stdin.flush()
        return self._read()

    def _read(self) -> dict[str, Any]:
        assert self._child.stdout is not None
        line = self._child.stdout.readline()
        if not line:
            raise RuntimeError(
                f"{self.name} ended with status {self._child.wait()}; does that Python have llama-cpp-python 0.3.36?"
            )
        return json.loads(line)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        assert self._child.stdin is not None
        assert self._child.stdout is not None
        self._child.stdin.close()
        self._child.wait()
        self._child.stdout.close()


def requantise(source: Path, target: Path, kind: gguf.GGMLQuantizationType) -> Path:
    """Write the model with its matrices in another type, so that llama.cpp runs the same weights as we do."""
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
