"""Measures one GGUF file with llama.cpp's own batches. Runs under the Python that has llama-cpp-python.

Knows nothing of Breakeven. Takes one JSON argument. Prints its build, then one JSON line for every line of standard
input, which is a measure's name or a list of token ids to predict. Several sequences decode in one batch, as in
llama-server's slots.
"""
# pyright: basic, reportMissingImports=false
# llama-cpp-python is in the other Python only, and its bindings are ctypes without types.

import json
import random
import sys
import time

import numpy as np
from llama_cpp import llama_cpp as lib

BATCH = 512


class Llama:
    """One model and a context for `sequences` sequences."""

    def __init__(self, settings: dict) -> None:
        self._settings = settings
        lib.llama_backend_init()
        self._model = lib.llama_model_load_from_file(settings["path"].encode(), lib.llama_model_default_params())
        params = lib.llama_context_default_params()
        per_sequence = settings["prompt"] + settings["output"] + 64
        params.n_ctx = settings["sequences"] * per_sequence
        params.n_batch = params.n_ubatch = BATCH
        params.n_seq_max = settings["sequences"]
        params.n_threads = params.n_threads_batch = settings["threads"]
        self._context = lib.llama_init_from_model(self._model, params)
        self._vocabulary = lib.llama_vocab_n_tokens(lib.llama_model_get_vocab(self._model))
        self._batch = lib.llama_batch_init(BATCH, 0, settings["sequences"])

    def decode(self, tokens: list[tuple[int, int, int, bool]]) -> None:
        """Compute (token, position, sequence, wants logits) entries, at most BATCH of them."""
        batch = self._batch
        batch.n_tokens = len(tokens)
        for i, (token, position, sequence, wants_logits) in enumerate(tokens):
            batch.token[i], batch.pos[i], batch.n_seq_id[i] = token, position, 1
            batch.seq_id[i][0], batch.logits[i] = sequence, wants_logits
        if status := lib.llama_decode(self._context, batch):
            raise RuntimeError(f"llama_decode gave {status}")

    def prefill(self, sequence: int, prompt: list[int]) -> int:
        """Compute a prompt; returns its likeliest next token."""
        for start in range(0, len(prompt), BATCH):
            part = prompt[start : start + BATCH]
            last = start + len(part) == len(prompt)
            entries = [(t, start + i, sequence, last and i == len(part) - 1) for i, t in enumerate(part)]
            self.decode(entries)
        return self.best(-1)

    def logits(self, row: int) -> np.ndarray:
        return np.ctypeslib.as_array(lib.llama_get_logits_ith(self._context, row), shape=(self._vocabulary,))

    def best(self, row: int) -> int:
        return int(self.logits(row).argmax())

    def predict(self, ids: list[int]) -> dict:
        """Losses and likeliest tokens of a text that fits one batch."""
        self.reset()
        self.decode([(token, i, 0, True) for i, token in enumerate(ids)])
        losses, likeliest = [], []
        for row, token in enumerate(ids[1:]):
            logits = self.logits(row).astype(np.float64)
            peak = logits.max()
            losses.append(float(np.log(np.exp(logits - peak).sum()) + peak - logits[token]))
            likeliest.append(int(logits.argmax()))
        return {"losses": losses, "likeliest": likeliest}

    def reset(self) -> None:
        lib.llama_memory_clear(lib.llama_get_memory(self._context), True)

    def rate(self, measure: str) -> float:
        """Tokens per second."""
        prompt, output, sequences = (self._settings[name] for name in ("prompt", "output", "sequences"))
        self.reset()
        if measure == "prefill":
            ids = self.fresh(prompt)
            began = time.perf_counter()
            self.prefill(0, ids)
            return prompt / (time.perf_counter() - began)
        if measure == "decode":
            return self.answer([self.fresh(64)], output, counts_prefill=False)
        return self.answer([self.fresh(prompt) for _ in range(sequences)], output, counts_prefill=True)

    def answer(self, prompts: list[list[int]], output: int, *, counts_prefill: bool) -> float:
        """Compute all prompts one after another, then all answers together, greedily; tokens per second."""
        began = time.perf_counter()
        newest = [self.prefill(sequence, ids) for sequence, ids in enumerate(prompts)]
        if not counts_prefill:
            began = time.perf_counter()
        for step in range(output - 1):
            self.decode([(t, len(prompts[s]) + step, s, True) for s, t in enumerate(newest)])
            newest = [self.best(row) for row in range(len(newest))]
        drawn = len(prompts) * (output if counts_prefill else output - 1)
        return drawn / (time.perf_counter() - began)

    def fresh(self, tokens: int) -> list[int]:
        low, high = self._settings["tokens"]
        return [random.randrange(low, high) for _ in range(tokens)]


def main() -> None:
    """Answer measure by measure until standard input ends."""
    llama = Llama(json.loads(sys.argv[1]))
    llama.rate("decode")
    print(json.dumps({"build": lib.llama_print_system_info().decode()}), flush=True)
    for line in sys.stdin:
        wanted = line.strip()
        is_text = wanted.startswith("[")
        answer = llama.predict(json.loads(wanted)) if is_text else {"rate": llama.rate(wanted)}
        print(json.dumps(answer), flush=True)


main()
