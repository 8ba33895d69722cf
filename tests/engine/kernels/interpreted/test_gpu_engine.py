"""The engine as on a GPU, interpreted: plan, runner, sampler and step loop together, against the CPU engine."""

from typing import cast

import pytest
import torch
from tokenizers import Tokenizer as FastTokenizer
from tokenizers.models import WordLevel
from triton.runtime.errors import OutOfResources

from local_engine.attention.cpu import CpuAttention
from local_engine.block_pool import BlockPool
from local_engine.config import EngineConfig
from local_engine.engine_core import EngineCore
from local_engine.kernels.device_sampler import DeviceSampler
from local_engine.kernels.gpu_assembly import build_gpu_runner, gpu_plan
from local_engine.kernels.gpu_runner import GpuRunner
from local_engine.kernels.gpu_steps import GpuSteps
from local_engine.kv_cache_manager import KvCacheManager
from local_engine.layers.linear import DenseLinear
from local_engine.model import DecoderModel
from local_engine.model_runner import ModelRunner, TokenPatch
from local_engine.request import Request
from local_engine.sampling.sampler import Sampler
from local_engine.sampling.sampling_params import SamplingParams
from local_engine.scheduler import Batch, Scheduler
from local_engine.steps import DirectSteps, Steps
from local_engine.text.tokenizer import Tokenizer
from tests.engine.kernels.models import make_config, make_weights

CPU = torch.device("cpu")
BLOCKS = 12
CONFIG = EngineConfig(device="cuda", weights="float32", kv_format="float32", max_running_requests=4)


def core(steps: Steps, *, drafts: int, budget: int) -> EngineCore:
    kv_cache = KvCacheManager(BlockPool(BLOCKS), block_size=16)
    scheduler = Scheduler(kv_cache, max_running_requests=4, max_tokens_per_step=budget)
    words = FastTokenizer(WordLevel({f"w{i}": i for i in range(200)}, unk_token="w0"))
    tokenizer = Tokenizer(words, chat_template=None, bos_token_id=None, eos_token_ids=[])
    return EngineCore(steps, scheduler, tokenizer, context_window=128, speculative_tokens=drafts)


def requests() -> list[Request]:
    """Two prefixes, each twice; answers are limited to two tokens, so that they repeat themselves."""
    again = [3, 4, 3, 3, 4, 4] * 3
    prompts = [again, [*range(40, 59)], [*again, 9], [*range(40, 59), 7]]
    params = SamplingParams(temperature=0.0, max_tokens=6, logit_bias={3: 50.0, 4: 50.0})
    return [Request(str(i), ids, params) for i, ids in enumerate(prompts)]


def scored() -> Request:
    """A prompt whose own tokens are scored, and partly cached from other requests."""
    params = SamplingParams(temperature=0.0, max_tokens=0, prompt_logprobs=2)
    return Request("scored", [*range(40, 59), 1, 2, 3], params)


def answers(engine: EngineCore, *others: Request) -> list[list[int]]:
    running = [*requests(), *others]
    for request in running:
        engine.add(request)
        engine.step()
    while engine.has_work:
        assert all(delta.error is None for delta in engine.step().deltas)
    return [request.output_token_ids for request in running]


@pytest.mark.parametrize(("drafts", "budget"), [(0, 64), (3, 16)])
def test_answers_are_those_of_the_cpu_engine(drafts: int, budget: int) -> None:
    """Including cached prefixes, chunked prompts, mixed batches, drafts, and a scored prompt."""
    config = make_config()
    model = DecoderModel(
        config, make_weights(config), build_linear=DenseLinear, attention=CpuAttention(), context_window=128
    )
    plain = ModelRunner(model, blocks=BLOCKS, block_size=16, kv_dtype=torch.float32)
    wanted, ours = scored(), scored()
    expected = answers(core(DirectSteps(plain, Sampler(CPU)), drafts=0, budget=64), wanted)
    runner = build_gpu_runner(config, make_weights(config), gpu_plan(CONFIG, BLOCKS, 128), CPU)
    runner.capture()
    engine = core(GpuSteps(runner, DeviceSampler(CPU)), drafts=drafts, budget=budget)
    assert answers(engine, ours) == expected
    assert [entry.rank for entry in ours.prompt_logprobs] == [entry.rank for entry in wanted.prompt_logprobs]
    for entry, other in zip(ours.prompt_logprobs, wanted.prompt_logprobs, strict=True):
        assert entry.logprob == pytest.approx(other.logprob, abs=1e-4)
        assert dict(entry.top) == pytest.approx(dict(other.top), abs=1e-4)
    assert drafts == 0 or engine.drafted_tokens > 0


class Uncompilable:
    """A runner whose kernels need more resources than the device has."""

    device = CPU

    def run(self, batch: Batch, patch: TokenPatch | None = None) -> torch.Tensor:
        raise OutOfResources(147_456, 101_376, "shared memory")


def test_a_kernel_that_does_not_compile_ends_its_requests_and_not_the_engine() -> None:
    steps = GpuSteps(cast("GpuRunner", Uncompilable()), DeviceSampler(CPU))
    engine, request = core(steps, drafts=0, budget=64), requests()[0]
    engine.add(request)
    assert "out of resource: shared memory" in str(engine.step().deltas[0].error)
    assert not engine.has_work


def test_the_plan_is_the_configuration() -> None:
    plan = gpu_plan(EngineConfig(device="cuda", weights="int4", kv_format="fp8", max_running_requests=9), 77, 4096)
    assert (plan.weights, plan.kv_dtype, plan.blocks, plan.context_window, plan.max_rows) == (
        "int4", torch.float8_e4m3fn, 77, 4096, 9,
    )  # fmt: skip
