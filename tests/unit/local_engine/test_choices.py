"""What is chosen if the command line leaves it open, as one table."""

from dataclasses import replace

import pytest

from local_engine.choices import Machine, Wishes, decide, sentence
from local_engine.cli import build_parser, engine_config, wishes
from local_engine.config import EngineConfig, KvFormat, StoredFormat, WeightFormat
from tests.unit.local_engine.sizes import GIB, LLAMA_8B

CPU = Machine(is_gpu=False, free_bytes=16 * GIB)
NATIVE_CPU = replace(CPU, has_native_decoder=True)
H200 = Machine(is_gpu=True, free_bytes=139 * GIB, has_fp8=True)
A100 = replace(H200, free_bytes=39 * GIB, has_fp8=False)


@pytest.mark.parametrize(
    ("machine", "stored", "weights"),
    [
        (NATIVE_CPU, None, "int8"),
        (NATIVE_CPU, "int4", "int8"),
        (CPU, None, "float32"),
        (CPU, "int8", "float32"),
        (H200, None, "bfloat16"),
        (H200, "int4", "int4"),
        (H200, "fp8", "fp8"),
        (H200, "int8", "bfloat16"),
        (A100, "fp8", "bfloat16"),
        (A100, "int4", "int4"),
    ],
)
def test_auto_takes_the_narrowest_that_costs_nothing(
    machine: Machine, stored: StoredFormat | None, weights: WeightFormat
) -> None:
    assert decide(EngineConfig(), Wishes(weights="auto"), LLAMA_8B, stored, machine).weights == weights


@pytest.mark.parametrize(
    ("options", "machine", "weights", "kv_format", "concurrency", "step"),
    [
        ([], NATIVE_CPU, "float32", "float32", 8, 512),
        (["--weights", "int8", "--max-concurrency", "3"], CPU, "int8", "float32", 3, 512),
        (["--max-tokens-per-step", "64"], CPU, "float32", "float32", 8, 64),
        (["--device", "cuda"], H200, "bfloat16", "bfloat16", 256, 8192),
        (["--device", "cuda"], A100, "bfloat16", "bfloat16", 161, 2048),
        (["--device", "cuda"], replace(A100, free_bytes=20 * GIB), "bfloat16", "bfloat16", 24, 2048),
        (["--device", "cuda"], replace(A100, free_bytes=4 * GIB), "bfloat16", "bfloat16", 8, 2048),
        (["--device", "cuda:1", "--weights", "fp8", "--kv-format", "fp8"], H200, "fp8", "fp8", 256, 8192),
        (["--device", "cuda", "--weights", "float32"], H200, "float32", "float32", 256, 8192),
        (["--device", "cuda", "--max-concurrency", "400"], A100, "bfloat16", "bfloat16", 400, 2048),
    ],
)
def test_what_is_left_open_follows_the_device(
    options: list[str], machine: Machine, weights: WeightFormat, kv_format: KvFormat, concurrency: int, step: int
) -> None:
    given = build_parser().parse_args(["serve", *options])
    config = decide(engine_config(given), wishes(given), LLAMA_8B, None, machine)
    assert (config.weights, config.kv_format) == (weights, kv_format)
    assert (config.max_running_requests, config.max_tokens_per_step) == (concurrency, step)


def test_the_choice_is_said_in_one_sentence() -> None:
    config = decide(replace(EngineConfig(), device="cuda"), Wishes(weights="auto"), LLAMA_8B, "int4", H200)
    assert sentence(config) == ("int4 weights and a bfloat16 KV cache on cuda; 256 answers at once, 8192 tokens a step")
