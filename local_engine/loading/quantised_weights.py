"""Quantised matrices of a safetensors folder, returned in float32 exactly as their format defines them.

fp8 and int8 with scales (per tensor, row or block), AWQ, GPTQ, and compressed-tensors' packed integers. Knows formats,
no model and no file.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final, Protocol

import torch

from local_engine.config import StoredFormat
from local_engine.errors import ModelUnsupported
from local_engine.loading.weights import BLOCK, NibbleBlocks

METHODS: Final = ("fp8", "fbgemm_fp8", "compressed-tensors", "awq", "gptq")
# Layouts of the methods that pack 32-bit words, the default first, and the supported widths.
LAYOUTS: Final = {"awq": ("gemm",), "gptq": ("gptq", "gptq_v2")}
BITS: Final = {"awq": (4,), "gptq": (4, 8)}
# Which of the eight columns of a word AWQ's nibble i belongs to.
AWQ_ORDER: Final = (0, 2, 4, 6, 1, 3, 5, 7)
SCALED: Final = (torch.float8_e4m3fn, torch.float8_e5m2, torch.int8)
PLAIN: Final = (torch.float32, torch.float16, torch.bfloat16, torch.float64)


class RawTensors(Protocol):
    """Tensors as stored."""

    def __contains__(self, name: str) -> bool: ...

    def raw(self, name: str) -> torch.Tensor:
        """In the file's own type; raises ModelUnsupported if it is missing."""
        ...


def plain_float(tensor: torch.Tensor, name: str) -> torch.Tensor:
    """A tensor that needs no scale, in float32; raises ModelUnsupported for a type that needs one."""
    if tensor.dtype not in PLAIN:
        raise ModelUnsupported(
            f"Tensor {name} is stored as {tensor.dtype}, and config.json has no quantization_config that says how it "
            f"is meant; take a checkpoint that says so ({', '.join(METHODS)}), or one that is not quantised."
        )
    return tensor.float()


@dataclass(frozen=True, slots=True)
class Scheme:
    """The content of `quantization_config`. `zero_shift` must be added to stored zero points; `block` is fp8's block
    shape."""

    method: str
    bits: int = 8
    zero_shift: int = 0
    block: tuple[int, int] | None = None
    is_float: bool = False

    @property
    def stored(self) -> StoredFormat:
        """The storage format of the matrices."""
        return "fp8" if self.is_float else "int4" if self.bits == 4 else "int8"


@dataclass(frozen=True, slots=True)
class Grouped:
    """Integers [in, out]; scales and zero points [groups, out]; the group of each input."""

    values: torch.Tensor
    scales: torch.Tensor
    zeros: torch.Tensor
    groups: torch.Tensor

    def weight(self) -> torch.Tensor:
        """float32 [out, in]."""
        shifted = self.values - self.zeros[self.groups]
        return (shifted.float() * self.scales.float()[self.groups]).T.contiguous()

    def nibbles(self) -> NibbleBlocks | None:
        """The same in blocks of 32 inputs, if values have 4 bits and no block spans two groups."""
        if len(self.groups) % BLOCK or int(self.values.max()) > 15:
            return None
        firsts = self.groups.unflatten(0, (-1, BLOCK))
        if not bool((firsts == firsts[:, :1]).all()):
            return None
        scales = self.scales.float()[firsts[:, 0]]
        offsets = -self.zeros[firsts[:, 0]].float() * scales
        values = self.values.T.to(torch.uint8).contiguous()
        return NibbleBlocks(values, scales.T.contiguous(), offsets.T.contiguous())


def read_scheme(config: dict[str, Any], folder: str) -> Scheme | None:
    """The scheme in a model's config.json, None for a plain model; raises ModelUnsupported for unsupported ones."""
    raw = config.get("quantization_config") or config.get("compression_config")
    if not raw:
        return None
    method = str(raw.get("quant_method"))
    if method not in METHODS:
        raise ModelUnsupported(f"{folder} is quantised by {method}; this engine reads {', '.join(METHODS)}, and GGUF.")
    if method in LAYOUTS:
        return _words_scheme(method, raw, folder)
    if method == "compressed-tensors":
        return _compressed(raw, folder)
    return Scheme(method, block=_block(raw.get("weight_block_size")), is_float=True)


def _words_scheme(method: str, raw: dict[str, Any], folder: str) -> Scheme:
    """For AWQ and GPTQ, whose various writers name the layout in different fields."""
    bits, layouts = raw.get("bits", raw.get("w_bit", 4)), LAYOUTS[method]
    if bits not in BITS[method]:
        known = " or ".join(map(str, BITS[method]))
        raise ModelUnsupported(f"{folder} is quantised by {method} to {bits} bits; this engine reads {known}.")
    named = (raw.get(field) for field in ("version" if method == "awq" else "checkpoint_format", "format"))
    layout = next((str(name).lower() for name in named if name), layouts[0])
    if layout not in layouts or raw.get("is_marlin_format"):
        layout = "marlin" if raw.get("is_marlin_format") else layout
        raise ModelUnsupported(f"{folder} is {method} in layout {layout}; this engine reads {' and '.join(layouts)}.")
    # GPTQ's first format stores zero points minus one.
    return Scheme(method, bits, zero_shift=1 if layout == "gptq" else 0)


def _block(sides: Any) -> tuple[int, int] | None:
    """`[128, 128]`, or "128x128" in older files."""
    if not sides:
        return None
    rows, columns = map(int, sides.split("x") if isinstance(sides, str) else sides)
    if min(rows, columns) < 1:
        raise ValueError(f"blocks of {rows} x {columns}")
    return rows, columns


def _compressed(raw: dict[str, Any], folder: str) -> Scheme:
    if raw.get("format") not in ("float-quantized", "int-quantized", "naive-quantized", "pack-quantized"):
        raise ModelUnsupported(f"{folder} is compressed-tensors of format {raw.get('format')}, which is not read.")
    if raw.get("transform_config"):
        raise ModelUnsupported(f"{folder} rotates its activations (transform_config), which is not supported.")
    found = {_weights_scheme(group, folder) for group in (raw.get("config_groups") or {}).values()}
    if len(found) != 1:
        raise ModelUnsupported(f"{folder} mixes {len(found)} quantisations; this engine reads one.")
    return found.pop()


def _weights_scheme(group: dict[str, Any], folder: str) -> Scheme:
    weights: dict[str, Any] = group.get("weights") or {}
    bits = weights.get("num_bits")
    if bits not in (4, 8) or not weights.get("symmetric", True):
        raise ModelUnsupported(f"{folder} has weights of {bits} bits; symmetric ones of 4 or 8 are read.")
    block, is_float = _block(weights.get("block_structure")), weights.get("type") == "float"
    return Scheme("compressed-tensors", bits, block=block, is_float=is_float)


class QuantisedWeights:
    """A WeightSource on stored tensors: matrices are dequantised, all others returned as they are."""

    def __init__(self, stored: RawTensors, scheme: Scheme) -> None:
        self._stored = stored
        self._scheme = scheme

    def __contains__(self, name: str) -> bool:
        base = name.removesuffix("weight")
        return name in self._stored or f"{base}qweight" in self._stored or f"{base}weight_packed" in self._stored

    def tensor(self, name: str) -> torch.Tensor:
        """Returns one tensor in float32; raises ModelUnsupported if it, or its scale, is missing."""
        if (grouped := self._grouped(name)) is not None:
            return grouped.weight()
        found = self._stored.raw(name)
        if found.dtype not in SCALED:
            return plain_float(found, name)
        scale = next((s for s in (f"{name}_scale", f"{name}_scale_inv") if s in self._stored), None)
        if scale is None:
            raise ModelUnsupported(f"Tensor {name} is stored as {found.dtype} without a scale.")
        return found.float() * _spread(self._stored.raw(scale).float(), found.shape, self._scheme.block, name)

    def nibbles(self, name: str) -> NibbleBlocks | None:
        """A 4-bit matrix as stored, with offsets multiplied out; None for any other."""
        grouped = self._grouped(name)
        return grouped.nibbles() if grouped is not None else None

    def _grouped(self, name: str) -> Grouped | None:
        base = name.removesuffix("weight")
        readers: dict[str, Callable[[str], Grouped]] = {"qweight": self._quantised, "weight_packed": self._packed}
        try:
            return next((read(base) for end, read in readers.items() if f"{base}{end}" in self._stored), None)
        # Of torch, for another type or shape.
        except (RuntimeError, LookupError, ValueError, TypeError, ArithmeticError) as error:
            raise ModelUnsupported(f"{base}: its tensors do not belong together ({error}).") from error

    def _quantised(self, base: str) -> Grouped:
        """AWQ and GPTQ: integers and zero points in 32-bit words."""
        words, zeros = self._stored.raw(f"{base}qweight"), self._stored.raw(f"{base}qzeros")
        scales, bits = self._stored.raw(f"{base}scales"), self._scheme.bits
        if self._scheme.method == "awq":
            values, zeros = _reorder(_unpack(words, bits)), _reorder(_unpack(zeros, bits))
        else:
            values = _unpack(words.T, bits).T
            # Added to the whole word, including carries, since writers subtract it that way.
            ones = sum(1 << at for at in range(0, 32, bits))
            zeros = _unpack(zeros + ones * self._scheme.zero_shift, bits)
        return _checked(Grouped(values, scales, zeros, self._groups(f"{base}g_idx", values, scales)), base)

    def _packed(self, base: str) -> Grouped:
        """compressed-tensors: words along the inputs, integers raised by half their range."""
        rows, columns = (int(side) for side in self._stored.raw(f"{base}weight_shape"))
        values = _unpack(self._stored.raw(f"{base}weight_packed"), self._scheme.bits)[:rows, :columns].T
        scales = self._stored.raw(f"{base}weight_scale").reshape(rows, -1).T
        zeros = torch.full(scales.shape, 1 << (self._scheme.bits - 1), dtype=torch.int32)
        return _checked(Grouped(values, scales, zeros, self._groups(f"{base}weight_g_idx", values, scales)), base)

    def _groups(self, name: str, values: torch.Tensor, scales: torch.Tensor) -> torch.Tensor:
        """The file's own group of each input, or consecutive groups of equal size."""
        if name in self._stored and bool((index := self._stored.raw(name).long()).ge(0).all()):
            return index
        size = -(-values.shape[0] // scales.shape[0])
        return torch.arange(values.shape[0]) // size


def _checked(grouped: Grouped, base: str) -> Grouped:
    """Raises ModelUnsupported for inconsistent shapes."""
    inputs, outputs = grouped.values.shape
    groups = grouped.scales.shape[0]
    fits = grouped.scales.shape == grouped.zeros.shape == (groups, outputs) and grouped.groups.shape == (inputs,)
    if not fits or int(grouped.groups.max()) >= groups:
        raise ModelUnsupported(
            f"{base}: {inputs} x {outputs} integers, scales {list(grouped.scales.shape)} and zero points "
            f"{list(grouped.zeros.shape)} do not belong together."
        )
    return grouped


def _unpack(words: torch.Tensor, bits: int) -> torch.Tensor:
    """int32 words [rows, n] as integers [rows, n * 32 / bits], lowest bits first."""
    shifts = torch.arange(0, 32, bits, dtype=torch.int32)
    return ((words[..., None] >> shifts) & ((1 << bits) - 1)).flatten(-2)


def _reorder(columns: torch.Tensor) -> torch.Tensor:
    """AWQ's columns in their proper order."""
    place = torch.empty(len(AWQ_ORDER), dtype=torch.int64)
    place[list(AWQ_ORDER)] = torch.arange(len(AWQ_ORDER))
    return columns.unflatten(-1, (-1, len(AWQ_ORDER)))[..., place].flatten(-2)


def _spread(scale: torch.Tensor, shape: torch.Size, block: tuple[int, int] | None, name: str) -> torch.Tensor:
    """Scales of a tensor, its rows or its blocks, expanded to multiply a matrix of `shape`."""
    if scale.numel() == 1:
        return scale.reshape(1, 1)
    # A grid of blocks may happen to have as many scales as there are rows.
    if scale.shape in ((shape[0],), (shape[0], 1)):
        return scale.reshape(-1, 1)
    sides = block or tuple(-(-side // count) for side, count in zip(shape, scale.shape, strict=False))
    if scale.dim() != 2 or len(shape) != 2 or any(-(-shape[i] // sides[i]) != scale.shape[i] for i in range(2)):
        raise ModelUnsupported(f"Tensor {name}, {list(shape)}, has scales of shape {list(scale.shape)}.")
    rows = scale.repeat_interleave(sides[0], dim=0)[: shape[0]]
    return rows.repeat_interleave(sides[1], dim=1)[:, : shape[1]]
