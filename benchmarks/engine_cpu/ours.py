"""Our engine, driven without HTTP: its rates in one weight format, with and without drafts."""

import time
from dataclasses import replace

from benchmarks.engine_cpu.sizes import SEQUENCES, Measure, Sizes, random_prompt
from local_engine.assembly import Engine, assemble
from local_engine.config import EngineConfig, WeightFormat
from local_engine.loading.weights import LoadedFile
from local_engine.request import Request
from local_engine.sampling.sampling_params import SamplingParams
from native import huge_pages

GROUNDED = (
    "Repeat the following text word for word.\n\nThe tides rise and fall twice a day because the Moon pulls on the "
    "water nearest to it more than on the Earth, and on the Earth more than on the water farthest away. The Sun helps "
    "or hinders: at new and full moon the two pull in one line and the tides are highest.\n\nText again:\n\nThe tides"
)
DRAFT_TOKENS = 8
BLOCK_SIZE = 16


class Ours:
    """A Contender with two engines from the same file: a plain one, and one with speculative decoding."""

    measures: tuple[Measure, ...] = (
        "prefill", "decode", "concurrent", "warm_speedup", "grounded", "grounded_drafted",
    )  # fmt: skip

    def __init__(self, loaded: LoadedFile, weights: WeightFormat, sizes: Sizes) -> None:
        self.name = f"ours {weights}"
        self._sizes = sizes
        self._seed = 0
        window = 2048
        blocks = SEQUENCES * (-(-(sizes.prompt + sizes.output) // BLOCK_SIZE) + 1) + window // BLOCK_SIZE
        config = EngineConfig(
            weights=weights, context_window=window, kv_blocks=blocks, block_size=BLOCK_SIZE, threads=sizes.threads
        )
        self._plain = assemble(loaded, config)
        self._drafting = assemble(loaded, replace(config, speculative_tokens=DRAFT_TOKENS))
        huge_pages.gather()  # as build_engine does

    def measure(self, what: Measure) -> float:
        match what:
            case "prefill":
                return self._sizes.prompt / self._first_token(self._fresh(self._sizes.prompt))[1]
            case "decode":
                return self._decode(self._plain, self._fresh(64))
            case "concurrent":
                return self._concurrent()
            case "warm_speedup":
                return self._warm_speedup()
            case "grounded":
                return self._decode(self._plain, self._plain.tokenizer.encode(GROUNDED))
            case "grounded_drafted":
                return self._decode(self._drafting, self._plain.tokenizer.encode(GROUNDED))
            case "served":
                raise ValueError("only a server is asked over HTTP")

    def _fresh(self, tokens: int) -> list[int]:
        self._seed += 1
        return random_prompt(self._seed, tokens)

    def _first_token(self, prompt: list[int]) -> tuple[Request, float]:
        request = Request("r", prompt, SamplingParams(temperature=0.0, max_tokens=1))
        self._plain.core.add(request)
        began = time.perf_counter()
        _run_out(self._plain)
        return request, time.perf_counter() - began

    def _decode(self, engine: Engine, prompt: list[int]) -> float:
        request = Request("r", prompt, SamplingParams(temperature=0.0, max_tokens=self._sizes.output))
        engine.core.add(request)
        while request.output_tokens == 0:
            engine.core.step()
        began, before = time.perf_counter(), request.output_tokens
        _run_out(engine)
        return (request.output_tokens - before) / (time.perf_counter() - began)

    def _concurrent(self) -> float:
        params = SamplingParams(temperature=0.0, max_tokens=self._sizes.output)
        for i in range(SEQUENCES):
            self._plain.core.add(Request(str(i), self._fresh(self._sizes.prompt), params))
        began = time.perf_counter()
        _run_out(self._plain)
        return SEQUENCES * self._sizes.output / (time.perf_counter() - began)

    def _warm_speedup(self) -> float:
        """The second prompt shares four fifths with the first, in whole blocks: 400 of 500 tokens for a size of 512."""
        cached = self._sizes.prompt * 4 // 5 // BLOCK_SIZE * BLOCK_SIZE
        head, tail = self._fresh(cached), self._fresh(cached // 4)
        cold = self._first_token(head + tail)[1]
        return cold / self._first_token(head + tail[::-1])[1]


def _run_out(engine: Engine) -> None:
    while engine.core.has_work:
        engine.core.step()
