"""Rotary position embedding (half-split layout), with precomputed cosines and sines."""

import math
from typing import Literal

import torch
from torch.nn import functional as F

from local_engine.config import ModelConfig, RopeScaling

RotaryKind = Literal["global", "local"]
Rotation = tuple[torch.Tensor, torch.Tensor]


def rotary_kinds(config: ModelConfig) -> tuple[RotaryKind, ...]:
    """The tables that a model's layers use: layers with a sliding window may have their own."""
    return ("global", "local") if config.local_rope_theta else ("global",)


def rotary_of(config: ModelConfig, layer: int) -> RotaryKind | None:
    """The tables of a layer; None if queries and keys are not rotated."""
    if layer in config.unrotated_layers:
        return None
    return "local" if config.local_rope_theta and layer not in config.full_layers else "global"


def inverse_frequencies(config: ModelConfig, positions: int, *, is_local: bool) -> torch.Tensor:
    """Radians per position for each rotated pair of a head, float32, scaled for this many positions.

    `is_local`: for layers with a sliding window, if these have a base of their own.
    """
    size = config.rotary_size or config.head_size
    theta = config.local_rope_theta if is_local else config.rope_theta
    exponents = torch.arange(0, size, 2, dtype=torch.float32) / size
    frequencies = 1.0 / (theta**exponents)
    scaling = None if is_local else config.rope_scaling
    if scaling is None:
        return frequencies
    if scaling.kind == "linear":
        return frequencies / scaling.factor
    if scaling.kind in ("divisors", "longrope"):
        is_long = scaling.kind == "longrope" and positions > scaling.original_context_window
        divisors = scaling.long_divisors if is_long else scaling.divisors
        return frequencies / torch.tensor(divisors, dtype=torch.float32)
    return _llama3(frequencies, scaling) if scaling.kind == "llama3" else _yarn(frequencies, scaling, config.rope_theta)


def rotation_tables(config: ModelConfig, positions: int, *, is_local: bool) -> tuple[torch.Tensor, torch.Tensor]:
    """Cosines and sines, float32 [positions, head_size / 2], by which queries and keys are multiplied.

    Pairs that are not rotated come after those that are; weights are arranged accordingly.
    """
    frequencies = inverse_frequencies(config, positions, is_local=is_local)
    angles = torch.outer(torch.arange(positions, dtype=torch.float32), frequencies)
    weight = 1.0 if is_local else _attention_factor(config.rope_scaling)
    still = (0, config.head_size // 2 - len(frequencies))
    return F.pad(angles.cos() * weight, still, value=1.0), F.pad(angles.sin() * weight, still)


def _attention_factor(scaling: RopeScaling | None) -> float:
    if scaling is None or scaling.kind not in ("yarn", "longrope"):
        return 1.0
    return scaling.attention_factor or 0.1 * math.log(max(1.0, scaling.factor)) + 1.0


def _yarn(frequencies: torch.Tensor, scaling: RopeScaling, theta: float) -> torch.Tensor:
    """Frequencies that rotate often within the original window are kept, those that rotate less than once are
    divided."""
    pairs = len(frequencies)

    def pair_that_turns(times: float) -> float:
        return pairs * math.log(scaling.original_context_window / (times * 2 * math.pi)) / math.log(theta)

    low = max(0, math.floor(pair_that_turns(scaling.fast_rotations)))
    high = min(2 * pairs - 1, math.ceil(pair_that_turns(scaling.slow_rotations)))
    divided = ((torch.arange(pairs, dtype=torch.float32) - low) / max(high - low, 0.001)).clamp(0, 1)
    return frequencies / scaling.factor * divided + frequencies * (1 - divided)


def _llama3(frequencies: torch.Tensor, scaling: RopeScaling) -> torch.Tensor:
    wavelengths = 2 * math.pi / frequencies
    low_wavelength = scaling.original_context_window / scaling.low_frequency_factor
    high_wavelength = scaling.original_context_window / scaling.high_frequency_factor
    spread = scaling.high_frequency_factor - scaling.low_frequency_factor
    smooth = (scaling.original_context_window / wavelengths - scaling.low_frequency_factor) / spread
    blended = (1 - smooth) * frequencies / scaling.factor + smooth * frequencies
    return torch.where(
        wavelengths < high_wavelength,
        frequencies,
        torch.where(wavelengths > low_wavelength, frequencies / scaling.factor, blended),
    )


class Rotary:
    """Rotates queries and keys [rows, heads, head_size] by their positions."""

    def __init__(self, config: ModelConfig, context_window: int, device: torch.device, *, is_local: bool) -> None:
        cos, sin = rotation_tables(config, context_window, is_local=is_local)
        self._cos = torch.cat((cos, cos), dim=-1).to(device)
        self._sin = torch.cat((-sin, sin), dim=-1).to(device)

    def at(self, positions: torch.Tensor) -> Rotation:
        """Cosines and signed sines for these positions, [rows, 1, head_size]; compute once per step, not per layer."""
        return self._cos[positions][:, None], self._sin[positions][:, None]


def rotate(x: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor) -> torch.Tensor:
    """x cos + swap_halves(x) sin, where `sin` contains the sign of the first half."""
    swapped = x.roll(x.shape[-1] // 2, dims=-1)
    return (x * cos).addcmul_(swapped, sin)
