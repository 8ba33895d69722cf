"""Compares a captured step of two layers with its prompt computed as a whole: do graphs replay on this device?"""

from dataclasses import replace

import torch

from benchmarks.engine_gpu import engine, rivals
from benchmarks.engine_gpu.shapes import LLAMA_8B
from local_engine.config import ModelConfig
from local_engine.kernels.gpu_runner import SEPARATE, OneRow
from local_engine.kernels.launch import is_hopper_or_later

TWO_LAYERS = replace(LLAMA_8B, name="two layers", layers=2, vocabulary_size=4096)
PROMPT_TOKENS = 200
# A step that begins too early may be right by chance.
REPLAYS = 20


def error_of_step(
    device: torch.device, way: OneRow, shape: ModelConfig = TWO_LAYERS, *, tokens: int = PROMPT_TOKENS
) -> float:
    """The largest relative error of the logits of a prompt's last token over replays of a step captured this way."""
    rival = rivals.build(shape, device)
    built = engine.build(
        shape,
        engine.StateDictWeights(rival.state_dict()),
        kind="bfloat16",
        blocks=-(-tokens // engine.BLOCK_SIZE),
        max_rows=1,
        device=device,
        one_row=(SEPARATE,),
    )
    built.runner.take_one_row(OneRow(way.fuses, way.overlaps and is_hopper_or_later(device)))
    prompt = list(range(tokens))
    wanted = engine.prompt_logits(built, prompt)
    times = REPLAYS if device.type == "cuda" else 1
    errors = [(engine.decode_logits(built, prompt) - wanted).norm() / wanted.norm() for _ in range(times)]
    return float(torch.stack(errors).max())
