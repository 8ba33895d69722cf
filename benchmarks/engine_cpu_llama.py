"""Runs under the Python that has llama-cpp-python: prefill and decode rates of one GGUF file, one sequence at a time.

Knows nothing of Breakeven. Arguments: file, threads, prompt tokens, answer tokens, repeats. Prints one JSON object.
"""

import json
import random
import sys
import time

from llama_cpp import Llama  # pyright: ignore[reportMissingImports]


def main() -> None:
    """Measure; llama.cpp's bindings run one sequence at a time."""
    path, threads, prompt, output, repeats = sys.argv[1], *map(int, sys.argv[2:])
    llama = Llama(path, n_ctx=2048, n_threads=threads, n_threads_batch=threads, n_batch=512, verbose=False)

    def prefill() -> float:
        llama.reset()
        ids = [random.randrange(1000, llama.n_vocab()) for _ in range(prompt)]
        began = time.perf_counter()
        llama.eval(ids)
        return prompt / (time.perf_counter() - began)

    def decode() -> float:
        llama.reset()
        llama.eval([random.randrange(1000, llama.n_vocab()) for _ in range(64)])
        began = time.perf_counter()
        for _ in range(output):
            llama.eval([llama.sample(temp=0.0)])
        return output / (time.perf_counter() - began)

    decode()
    best = {"prefill": max(prefill() for _ in range(repeats)), "decode": max(decode() for _ in range(repeats))}
    print(json.dumps(best))


main()
