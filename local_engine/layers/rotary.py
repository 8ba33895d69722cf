"""Rotary position embedding, halves side by side, with its cosines and sines tabled once."""

import math

import torch

from local_engine.config import ModelConfig, RopeScaling


def inverse_frequencies(config: ModelConfig) -> torch.Tensor:
    """Radians per position for each pair of a head, float32, long-context scaling applied."""
    exponents = torch.arange(0, config.head_size, 2, dtype=torch.float32) / config.head_size
    frequencies = 1.0 / (config.rope_theta**exponents)
    scaling = config.rope_scaling
    if scaling is None:
        return frequencies
    if scaling.kind == "linear":
        return frequencies / scaling.factor
    if scaling.kind == "divisors":
        return frequencies / torch.tensor(scaling.divisors, dtype=torch.float32)
    return _llama3(frequencies, scaling) if scaling.kind == "llama3" else _yarn(frequencies, scaling, config.rope_theta)


def rotation_tables(config: ModelConfig, positions: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Cosines and sines, float32 [positions, head_size / 2], as queries and keys are multiplied by them."""
    angles = torch.outer(torch.arange(positions, dtype=torch.float32), inverse_frequencies(config))
    weight = _attention_factor(config.rope_scaling)
    return angles.cos() * weight, angles.sin() * weight


def _attention_factor(scaling: RopeScaling | None) -> float:
    if scaling is None or scaling.kind != "yarn":
        return 1.0
    return scaling.attention_factor or 0.1 * math.log(max(1.0, scaling.factor)) + 1.0


def _yarn(frequencies: torch.Tensor, scaling: RopeScaling, theta: float) -> torch.Tensor:
    """Frequencies that turn often within the original window stay, those that turn less than once are divided."""
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
    """Rotates queries and keys of [rows, heads, head_size] by their positions."""

    def __init__(self, config: ModelConfig, context_window: int, device: torch.device) -> None:
        cos, sin = rotation_tables(config, context_window)
        self._cos = torch.cat((cos, cos), dim=-1).to(device)
        self._sin = torch.cat((-sin, sin), dim=-1).to(device)

    def at(self, positions: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Cosines and signed sines for these positions, [rows, 1, head_size]; compute once per step, not per layer."""
        return self._cos[positions][:, None], self._sin[positions][:, None]


def rotate(x: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor) -> torch.Tensor:
    """x cos + swap_halves(x) sin, the sign of the first half being in `sin`."""
    swapped = x.roll(x.shape[-1] // 2, dims=-1)
    return (x * cos).addcmul_(swapped, sin)
