"""Blocks for the KV cache and the fit check, from sizes alone."""

from dataclasses import replace

import pytest

from local_engine.assembly import check_capability, check_device
from local_engine.config import EngineConfig, ExpertShape, WeightFormat
from local_engine.errors import DoesNotFit, ModelUnsupported
from local_engine.memory_plan import plan_blocks, weight_bytes
from tests.unit.local_engine.sizes import GIB, LLAMA_8B

ON_GPU = EngineConfig(device="cuda", weights="bfloat16", kv_format="bfloat16", max_running_requests=256)


def test_a_cpu_gets_every_request_a_quarter_of_the_window() -> None:
    small = replace(LLAMA_8B, layers=1, vocabulary_size=100)
    assert plan_blocks(small, EngineConfig(max_running_requests=8), 8192, 100 * GIB) == 8 * 2048 // 16
    assert plan_blocks(small, EngineConfig(max_running_requests=1), 8192, 100 * GIB) == 8192 // 16
    assert plan_blocks(small, EngineConfig(kv_blocks=7), 8192, 100 * GIB) == 7


def test_a_gpu_is_filled_with_cache_up_to_what_could_be_used() -> None:
    blocks = plan_blocks(LLAMA_8B, ON_GPU, 8192, 140 * GIB)
    cache = blocks * 16 * LLAMA_8B.kv_bytes_per_token(2)
    assert 0.99 * 126 * GIB < cache + weight_bytes(LLAMA_8B, "bfloat16") <= 126 * GIB
    assert plan_blocks(LLAMA_8B, replace(ON_GPU, max_running_requests=2), 8192, 140 * GIB) == 2 * 512
    half = plan_blocks(LLAMA_8B, replace(ON_GPU, kv_format="fp8"), 8192, 140 * GIB)
    assert half == pytest.approx(2 * blocks, abs=1)


@pytest.mark.parametrize(
    ("weights", "gigabytes"), [("float32", 32.1), ("bfloat16", 16.1), ("fp8", 9.1), ("int4", 6.1), ("int8", 11.1)]
)
def test_weights_are_counted_in_their_format(weights: WeightFormat, gigabytes: float) -> None:
    assert weight_bytes(LLAMA_8B, weights) / 1e9 == pytest.approx(gigabytes, abs=0.06)


def test_all_experts_take_memory_and_few_take_part() -> None:
    """Qwen3-30B-A3B's shape: 30.5 billion weights, of which a token uses 3.3 billion."""
    experts = ExpertShape(128, 8, 768)
    shape = replace(
        LLAMA_8B, layers=48, hidden_size=2048, heads=32, kv_heads=4, vocabulary_size=151_936, experts=experts
    )
    assert shape.parameters / 1e9 == pytest.approx(30.5, abs=0.06)
    assert shape.active_parameters / 1e9 == pytest.approx(3.3, abs=0.06)
    assert weight_bytes(shape, "bfloat16") == 2 * shape.parameters
    half = replace(shape, experts=replace(experts, dense_layers=frozenset(range(24))))
    assert half.parameters < shape.parameters


def test_a_files_four_bits_take_what_they_take_in_int8_too() -> None:
    whole = weight_bytes(LLAMA_8B, "int8")
    assert whole - weight_bytes(LLAMA_8B, "int8", 0.75) == pytest.approx(0.375 * LLAMA_8B.parameters)
    assert weight_bytes(LLAMA_8B, "int8", 2.0) == whole


def test_float32_weights_that_are_kept_as_the_file_has_them_take_what_that_takes() -> None:
    with pytest.raises(DoesNotFit):
        plan_blocks(LLAMA_8B, EngineConfig(), 8192, 24 * GIB)
    assert plan_blocks(LLAMA_8B, EngineConfig(), 8192, 24 * GIB, exact_bytes_per_weight=2.0) == 8 * 2048 // 16


@pytest.mark.parametrize(
    ("config", "memory"), [(ON_GPU, 16 * GIB), (EngineConfig(), 24 * GIB), (replace(ON_GPU, kv_blocks=10**6), 80 * GIB)]
)
def test_what_does_not_fit_is_refused_with_the_numbers(config: EngineConfig, memory: int) -> None:
    with pytest.raises(DoesNotFit, match=r"llama-8b needs \d+\.\d\d GB for weights and .* GB are available"):
        plan_blocks(LLAMA_8B, config, 8192, memory)


@pytest.mark.parametrize(
    ("config", "said"),
    [
        (EngineConfig(weights="fp8"), "fp8 weights do not run on cpu; choose one of float32, int8"),
        (EngineConfig(kv_format="fp8"), "needs a GPU"),
        (EngineConfig(device="cuda", weights="int8"), "int8 weights do not run on cuda; choose one of bfloat16"),
        (EngineConfig(device="cuda:99"), "No CUDA device answers for cuda:99"),
        (EngineConfig(device="gpu"), "--device is cpu, cuda or cuda:N, not gpu"),
    ],
)
def test_what_a_device_cannot_run_is_one_sentence(config: EngineConfig, said: str) -> None:
    with pytest.raises(ModelUnsupported, match=said):
        check_device(config)


@pytest.mark.parametrize(
    ("capability", "config", "words"),
    [
        ((7, 5), ON_GPU, "This engine needs a GPU of compute capability 8.0 or later and cuda has 7.5"),
        ((8, 0), replace(ON_GPU, weights="fp8"), "--weights fp8 needs .* 8.9 or later and cuda has 8.0"),
        ((8, 6), replace(ON_GPU, kv_format="fp8"), "--kv-format fp8 needs .* choose bfloat16"),
    ],
)
def test_a_gpu_too_old_for_what_is_asked_is_refused(
    capability: tuple[int, int], config: EngineConfig, words: str
) -> None:
    with pytest.raises(ModelUnsupported, match=words):
        check_capability(capability, config)


@pytest.mark.parametrize("capability", [(8, 0), (8, 9), (9, 0), (12, 0)])
def test_a_newer_gpu_is_taken(capability: tuple[int, int]) -> None:
    check_capability(capability, ON_GPU)
    check_capability((8, 9), replace(ON_GPU, weights="fp8", kv_format="fp8"))
