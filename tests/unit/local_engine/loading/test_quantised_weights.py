"""Quantised safetensors folders: packed as their tools do, dequantised exactly, with the same answers as
transformers."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file

from local_engine.assembly import assemble
from local_engine.errors import ModelUnsupported
from local_engine.loading.quantised_weights import AWQ_ORDER, QuantisedWeights, Scheme, read_scheme
from local_engine.loading.safetensors_loader import load_safetensors
from tests.unit.local_engine.loading.answers import SMALL, assert_same
from tests.unit.local_engine.tiny_models import make_model, write_folder

GROUP = 32
# What a packer makes of a matrix [out, in]: the stored tensors, by the end of their names, and their exact weights.
Packed = tuple[dict[str, torch.Tensor], torch.Tensor]


def words(values: torch.Tensor, bits: int) -> torch.Tensor:
    """Integers [rows, n] packed into 32-bit words, the first value lowest."""
    packed = torch.zeros(values.shape[0], values.shape[1] * bits // 32, dtype=torch.int64)
    for at in range(values.shape[1]):
        packed[:, at * bits // 32] |= values[:, at].long() << (at * bits % 32)
    return packed.where(packed < 2**31, packed - 2**32).int()


def grouped(weight: torch.Tensor, order: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """4-bit values [in, out], with float16 scales and zero points from 1 to 15, [groups, out]."""
    groups = weight.shape[1] // GROUP
    span = torch.stack([weight[:, order == g].abs().amax(1) for g in range(groups)])
    scales = (span / 7).half()
    zeros = (torch.arange(span.numel()).view(span.shape) * 7 % 15 + 1).int()
    values = (weight.T / scales.float()[order] + zeros[order]).round().clamp(0, 15).int()
    return values, scales, zeros


def meaning(values: torch.Tensor, scales: torch.Tensor, zeros: torch.Tensor, order: torch.Tensor) -> torch.Tensor:
    return ((values - zeros[order]) * scales.float()[order]).T


def in_sequence(weight: torch.Tensor) -> torch.Tensor:
    return torch.arange(weight.shape[1]) // GROUP


def awq(weight: torch.Tensor) -> Packed:
    order = in_sequence(weight)
    values, scales, zeros = grouped(weight, order)

    def interleaved(columns: torch.Tensor) -> torch.Tensor:
        return columns.unflatten(1, (-1, 8))[..., list(AWQ_ORDER)].flatten(1)

    stored = {"qweight": words(interleaved(values), 4), "qzeros": words(interleaved(zeros), 4), "scales": scales}
    return stored, meaning(values, scales, zeros, order)


def gptq(weight: torch.Tensor, *, is_reordered: bool = False, less: int = 1) -> Packed:
    order = in_sequence(weight)
    if is_reordered:
        order = order[torch.randperm(len(order), generator=torch.Generator().manual_seed(1))]
    values, scales, zeros = grouped(weight, order)
    stored = {
        "qweight": words(values.T, 4).T,
        "qzeros": words(zeros - less, 4),
        "scales": scales,
        "g_idx": order.int(),
    }
    return stored, meaning(values, scales, zeros, order)


def gptq_reordered(weight: torch.Tensor) -> Packed:
    return gptq(weight, is_reordered=True)


def gptq_v2(weight: torch.Tensor) -> Packed:
    return gptq(weight, less=0)


def gptq_rewritten(weight: torch.Tensor) -> Packed:
    """As GPTQModel writes the first format: one is subtracted from whole words, so that a zero point of 0 borrows."""
    order = in_sequence(weight)
    values, scales, zeros = grouped(weight, order)
    zeros[:, ::3] = 0
    stored = {"qweight": words(values.T, 4).T, "qzeros": words(zeros, 4) - 0x11111111, "scales": scales}
    return stored, meaning(values, scales, zeros, order)


def packed_integers(weight: torch.Tensor) -> Packed:
    scales = (weight.unflatten(1, (-1, GROUP)).abs().amax(2) / 7).half()
    spread = scales.float().repeat_interleave(GROUP, 1)
    values = (weight / spread).round().clamp(-8, 7).int()
    shape = torch.tensor(weight.shape)
    return {"weight_packed": words(values + 8, 4), "weight_scale": scales, "weight_shape": shape}, values * spread


def fp8_by(scales: torch.Tensor, spread: torch.Tensor, weight: torch.Tensor, name: str = "weight_scale") -> Packed:
    values = (weight / spread).to(torch.float8_e4m3fn)
    return {"weight": values, name: scales}, values.float() * spread


def fp8_tensor(weight: torch.Tensor) -> Packed:
    scale = weight.abs().max() / 448
    return fp8_by(scale, scale, weight)


def fp8_rows(weight: torch.Tensor) -> Packed:
    scales = weight.abs().amax(1, keepdim=True) / 448
    return fp8_by(scales, scales, weight)


def fp8_blocks(weight: torch.Tensor) -> Packed:
    """Blocks of 48 x 32, of which the last of a column is incomplete."""
    rows, columns = weight.shape
    scales = torch.rand(-(-rows // 48), columns // 32, generator=torch.Generator().manual_seed(2)) * 0.01 + 0.002
    spread = scales.repeat_interleave(48, 0)[:rows].repeat_interleave(32, 1)
    return fp8_by(scales, spread, weight, "weight_scale_inv")


def int8_rows(weight: torch.Tensor) -> Packed:
    scales = weight.abs().amax(1, keepdim=True) / 127
    values = (weight / scales).round().to(torch.int8)
    return {"weight": values, "weight_scale": scales}, values.float() * scales


def compressed(form: str, bits: int) -> dict[str, Any]:
    weights: dict[str, Any] = {"num_bits": bits, "symmetric": True, "group_size": GROUP}
    weights["type"] = "float" if "float" in form else "int"
    return {"quant_method": "compressed-tensors", "format": form, "config_groups": {"group_0": {"weights": weights}}}


FORMATS: dict[str, tuple[Callable[[torch.Tensor], Packed], dict[str, Any]]] = {
    "awq": (awq, {"quant_method": "awq", "bits": 4, "group_size": GROUP, "version": "gemm"}),
    "gptq": (gptq, {"quant_method": "gptq", "bits": 4, "group_size": GROUP}),
    "gptq reordered": (gptq_reordered, {"quant_method": "gptq", "bits": 4, "desc_act": True}),
    "gptq v2": (gptq_v2, {"quant_method": "gptq", "bits": 4, "checkpoint_format": "gptq_v2"}),
    "gptq rewritten": (gptq_rewritten, {"quant_method": "gptq", "bits": 4, "format": "gptq"}),
    "packed": (packed_integers, compressed("pack-quantized", 4)),
    "fp8 a tensor": (fp8_tensor, {"quant_method": "fp8", "activation_scheme": "static"}),
    "fp8 rows": (fp8_rows, compressed("float-quantized", 8)),
    "fp8 blocks": (fp8_blocks, {"quant_method": "fp8", "weight_block_size": [48, 32]}),
    "int8 rows": (int8_rows, compressed("int-quantized", 8)),
}


def quantise_folder(folder: Path, pack: Callable[[torch.Tensor], Packed], config: dict[str, Any]) -> dict[str, Any]:
    """Replaces the layers' matrices in a folder; returns their exact weights by name."""
    tensors, meant = load_file(folder / "model.safetensors"), dict[str, torch.Tensor]()
    for name in [name for name in tensors if name.endswith("proj.weight")]:
        stored, meant[name] = pack(tensors.pop(name).float())
        tensors |= {name.removesuffix("weight") + end: tensor.contiguous() for end, tensor in stored.items()}
    save_file(tensors, folder / "model.safetensors")
    described = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps(described | {"quantization_config": config}))
    return meant


@pytest.mark.parametrize("name", list(FORMATS))
def test_a_quantised_folder_answers_as_transformers_on_the_numbers_it_means(tmp_path: Path, name: str) -> None:
    model = make_model("qwen2")
    meant = quantise_folder(write_folder(model, tmp_path), *FORMATS[name])
    model.load_state_dict(meant, strict=False)
    loaded = load_safetensors(tmp_path)
    assert loaded.stored == ("fp8" if "fp8" in name else "int8" if "int8" in name else "int4")
    for tensor, wanted in meant.items():
        assert tensor in loaded.weights
        torch.testing.assert_close(loaded.weights.tensor(tensor), wanted, rtol=1e-6, atol=1e-7)
        nibbles = loaded.nibbles(tensor)
        assert (nibbles is not None) == (name in ("awq", "gptq", "gptq v2", "gptq rewritten", "packed"))
        if nibbles is not None:
            blocks = nibbles.values.unflatten(1, (-1, GROUP)) * nibbles.scales[..., None] + nibbles.offsets[..., None]
            torch.testing.assert_close(blocks.flatten(1), wanted, rtol=1e-5, atol=1e-6)
    assert_same(assemble(loaded, SMALL), model)


def test_a_part_of_a_fused_matrix_is_read_in_few_bits(tmp_path: Path) -> None:
    model = make_model("phi3")
    meant = quantise_folder(write_folder(model, tmp_path), *FORMATS["awq"])
    model.load_state_dict(meant, strict=False)
    loaded = load_safetensors(tmp_path)
    held = loaded.nibbles("model.layers.1.self_attn.k_proj.weight")
    assert held is not None
    assert held.values.shape == (32, 64)
    assert_same(assemble(loaded, SMALL), model)


@pytest.mark.parametrize(
    ("config", "words"),
    [
        ({"quant_method": "bitsandbytes"}, "quantised by bitsandbytes; this engine reads fp8"),
        ({"quant_method": "gptq", "bits": 3}, "to 3 bits; this engine reads 4 or 8"),
        ({"quant_method": "gptq", "bits": 4, "checkpoint_format": "marlin"}, "layout marlin"),
        ({"quant_method": "gptq", "bits": 4, "is_marlin_format": True}, "layout marlin"),
        ({"quant_method": "awq", "bits": 4, "format": "gemv_fast"}, "layout gemv_fast"),
        (compressed("pack-quantized", 4) | {"transform_config": {"config_groups": {"R1": {}}}}, "rotates"),
        ({"quant_method": "awq", "bits": 8}, "to 8 bits"),
        ({"quant_method": "awq", "bits": 4, "version": "gemv"}, "layout gemv"),
        ({"quant_method": "compressed-tensors", "format": "marlin-24"}, "format marlin-24"),
        ({"quant_method": "compressed-tensors", "format": "pack-quantized", "config_groups": {}}, "mixes 0"),
        (compressed("pack-quantized", 2), "weights of 2 bits"),
    ],
)
def test_a_variation_that_is_not_read_is_named(config: dict[str, Any], words: str) -> None:
    with pytest.raises(ModelUnsupported, match=words):
        read_scheme({"quantization_config": config}, "tiny")


@pytest.mark.parametrize(
    ("shape", "scales", "block"), [((4, 16), (1, 4), (4, 4)), ((4, 16), (2, 2), (2, 8)), ((8, 16), (2, 4), None)]
)
def test_as_many_blocks_as_rows_are_not_taken_for_rows(
    shape: tuple[int, int], scales: tuple[int, int], block: tuple[int, int] | None
) -> None:
    found = torch.arange(scales[0] * scales[1]).float().view(scales) + 1
    ones = torch.ones(shape).to(torch.float8_e4m3fn)
    stored = Stored(a__weight=ones, a__weight_scale_inv=found)
    spread = found.repeat_interleave(shape[0] // scales[0], 0).repeat_interleave(-(-shape[1] // scales[1]), 1)
    assert torch.equal(QuantisedWeights(stored, Scheme("fp8", block=block)).tensor("a.weight"), spread[:, : shape[1]])


def test_a_block_may_be_written_as_text() -> None:
    weights = {"num_bits": 8, "block_structure": "128x64"}
    config = compressed("float-quantized", 8) | {"config_groups": {"group_0": {"weights": weights}}}
    assert read_scheme({"quantization_config": config}, "tiny") == Scheme("compressed-tensors", 8, block=(128, 64))


@pytest.mark.parametrize("dtype", [torch.float8_e4m3fn, torch.int8, torch.uint8])
def test_a_folder_whose_config_is_silent_about_its_quantisation_is_refused(tmp_path: Path, dtype: torch.dtype) -> None:
    """As left by a tool that writes its scheme into a separate file: without scales the numbers are noise."""
    folder = write_folder(make_model("llama"), tmp_path)
    tensors = load_file(folder / "model.safetensors")
    tensors["model.layers.0.mlp.up_proj.weight"] = tensors["model.layers.0.mlp.up_proj.weight"].to(dtype)
    save_file(tensors, folder / "model.safetensors")
    with pytest.raises(ModelUnsupported, match="has no quantization_config"):
        assemble(load_safetensors(folder), SMALL)


def test_a_block_of_nothing_is_an_error() -> None:
    with pytest.raises(ValueError, match="blocks of 0 x 32"):
        read_scheme({"quantization_config": {"quant_method": "fp8", "weight_block_size": [0, 32]}}, "tiny")


def test_a_plain_model_has_no_scheme() -> None:
    assert read_scheme({}, "tiny") is None


class Stored:
    """Tensors by name."""

    def __init__(self, **tensors: torch.Tensor) -> None:
        self._tensors = {name.replace("__", "."): tensor for name, tensor in tensors.items()}

    def __contains__(self, name: str) -> bool:
        return name in self._tensors

    def raw(self, name: str) -> torch.Tensor:
        return self._tensors[name]


@pytest.mark.parametrize(
    ("stored", "words"),
    [
        (Stored(a__weight=torch.zeros(4, 4, dtype=torch.float8_e4m3fn)), "without a scale"),
        (Stored(a__weight=torch.zeros(4, 4, dtype=torch.int8), a__weight_scale=torch.ones(3, 9)), r"\[3, 9\]"),
        (
            Stored(
                a__qweight=torch.zeros(8, 4, dtype=torch.int32),
                a__qzeros=torch.zeros(2, 1, dtype=torch.int32),
                a__scales=torch.zeros(2, 4),
            ),
            "do not belong together",
        ),
        (Stored(a__qweight=torch.zeros(8, 4), a__qzeros=torch.zeros(1), a__scales=torch.zeros(1)), "a.: its tensors"),
        (
            Stored(a__weight_packed=torch.zeros(8, dtype=torch.int32), a__weight_shape=torch.tensor(8)),
            "a.: its tensors",
        ),
    ],
)
def test_tensors_that_do_not_fit_are_an_error(stored: Stored, words: str) -> None:
    with pytest.raises(ModelUnsupported, match=words):
        QuantisedWeights(stored, Scheme("gptq", 4)).tensor("a.weight")
