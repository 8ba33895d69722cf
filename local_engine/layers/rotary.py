"""Rotary position embedding, halves side by side, with its cosines and sines tabled once."""

import math

import torch

from local_engine.config import ModelConfig, RopeScaling


def inverse_frequencies(config: ModelConfig) -> torch.Tensor:
    """Radians per position for each pair of a head, float32, long-context scaling applied."""
    exponents = torch.arange(0, config.head_size, 2, dtype=torch.float32) / config.head_size
    frequencies = 1.0 / (config.rope_theta**exponents)
    return frequencies if config.rope_scaling is None else _scaled(frequencies, config.rope_scaling)


def _scaled(frequencies: torch.Tensor, scaling: RopeScaling) -> torch.Tensor:
    if scaling.kind == "linear":
        return frequencies / scaling.factor
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
        angles = torch.outer(torch.arange(context_window, dtype=torch.float32), inverse_frequencies(config))
        self._cos = torch.cat((angles.cos(), angles.cos()), dim=-1).to(device)
        self._sin = torch.cat((-angles.sin(), angles.sin()), dim=-1).to(device)

    def at(self, positions: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Cosines and signed sines for these positions, [rows, 1, head_size]; compute once per step, not per layer."""
        return self._cos[positions][:, None], self._sin[positions][:, None]


def rotate(x: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor) -> torch.Tensor:
    """x cos + swap_halves(x) sin, the sign of the first half being in `sin`."""
    swapped = x.roll(x.shape[-1] // 2, dims=-1)
    return (x * cos).addcmul_(swapped, sin)
