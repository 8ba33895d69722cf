"""Reads a model folder in Hugging Face's format: config, safetensors shards, tokenizer and chat template."""

import json
import math
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final

import torch
from safetensors import SafetensorError, safe_open
from tokenizers import Tokenizer as FastTokenizer

from local_engine.errors import ModelUnavailable, ModelUnsupported
from local_engine.loading.arranged_weights import PLAIN, arranged, our_name, prefix_of
from local_engine.loading.config_json import change_of, check_family, read_config, text_part
from local_engine.loading.field_types import ConfigJson, TokenizerSettings, check_types
from local_engine.loading.open_file import OpenFile
from local_engine.loading.quantised_weights import QuantisedWeights, plain_float, read_scheme
from local_engine.loading.weight_shapes import check_names
from local_engine.loading.weights import LoadedFile, no_nibbles
from local_engine.text.panics import panics_told
from local_engine.text.tokenizer import Tokenizer

HEAD: Final = "lm_head.weight"
INDEX: Final = "model.safetensors.index.json"
KINDS: Final = {
    "F64": torch.float64, "F32": torch.float32, "F16": torch.float16, "BF16": torch.bfloat16,
    "F8_E4M3": torch.float8_e4m3fn, "F8_E5M2": torch.float8_e5m2, "I64": torch.int64, "I32": torch.int32,
    "I16": torch.int16, "I8": torch.int8, "U8": torch.uint8, "BOOL": torch.bool,
}  # fmt: skip
# Of a header or a JSON file, twice what 100,000 tensors take; reading it takes thirty times as much memory.
MOST_JSON_BYTES: Final = 1 << 25


@dataclass(frozen=True, slots=True)
class _Stored:
    file: OpenFile
    kind: str
    shape: tuple[int, ...]
    start: int
    end: int


class SafetensorsWeights:
    """Tensors of one or more safetensors files, opened once and read on demand."""

    def __init__(self, folder: Path) -> None:
        """Raises ModelUnavailable for a tensor in two files: readers differ on which counts."""
        self._stored: dict[str, _Stored] = {}
        for name, stored in (found for path in _shards(folder) for found in _read_header(path)):
            if (other := self._stored.setdefault(name, stored)) is not stored:
                both = f"{other.file.name} and {stored.file.name}"
                raise ModelUnavailable(f"{folder} holds {name} twice, in {both}; remove the file that is not meant.")

    def __contains__(self, name: str) -> bool:
        return name in self._stored

    def names(self) -> list[str]:
        """Names of all tensors."""
        return list(self._stored)

    def tensor(self, name: str) -> torch.Tensor:
        """Returns one tensor in float32; raises ModelUnsupported if it is missing or needs a scale."""
        return plain_float(self.raw(name), name)

    def mean_bytes(self) -> float:
        """Bytes per value over all tensors, at most four."""
        sizes = [(math.prod(one.shape), 2 if one.kind in ("BF16", "F16") else 4) for one in self._stored.values()]
        return sum(count * width for count, width in sizes) / max(1, sum(count for count, _ in sizes))

    def raw(self, name: str) -> torch.Tensor:
        """Returns one tensor in the file's own type; raises ModelUnsupported if it is missing."""
        if (found := self._stored.get(name)) is None:
            raise ModelUnsupported(f"The model folder has no tensor {name}.")
        if (kind := KINDS.get(found.kind)) is None:
            raise ModelUnsupported(f"Tensor {name} is stored as {found.kind}; this engine reads {', '.join(KINDS)}.")
        if found.end == found.start:  # torch views no empty tensor as another type
            return torch.empty(found.shape, dtype=kind)
        raw = torch.from_numpy(found.file.read(found.start, found.end - found.start))
        return raw.view(kind).reshape(found.shape)


def load_safetensors(folder: Path) -> LoadedFile:
    """Opens a folder; ModelUnavailable if part of it is missing or damaged, ModelUnsupported for other kinds."""
    raw = read_json(folder / "config.json")
    try:
        check_family(raw, folder.name)
        check_types(raw, ConfigJson, str(folder / "config.json"))
        stored = SafetensorsWeights(folder)
        scheme = read_scheme(raw, folder.name)
        weights: SafetensorsWeights | QuantisedWeights = stored if scheme is None else QuantisedWeights(stored, scheme)
        described, prefix = text_part(raw), prefix_of(weights)

        def has(name: str) -> bool:
            return name.replace(PLAIN, prefix) in weights

        config = read_config(described, folder.resolve().name.lower(), folder=folder.name, has=has)
        if config.has_tied_embedding and has(HEAD) and not _are_equal(stored, HEAD, f"{prefix}embed_tokens.weight"):
            config = replace(config, has_tied_embedding=False)  # as in transformers
        tokenizer = _load_tokenizer(folder, raw)
    except KeyError as error:
        raise ModelUnavailable(f"{folder / 'config.json'} lacks {error.args[0]!r}.") from error
    except (ValueError, TypeError, AttributeError, ArithmeticError, MemoryError) as error:
        raise ModelUnavailable(f"A JSON file of {folder} has a value of no model ({error}).") from error
    parts = [name for name in stored.names() if name.startswith((prefix, "lm_head."))]
    check_names({our_name(name, prefix): name for name in parts}, config, file=folder.name)
    nibbles = weights.nibbles if isinstance(weights, QuantisedWeights) else no_nibbles
    stored_in = None if scheme is None else scheme.stored
    held = 4.0 if scheme is not None else stored.mean_bytes()
    loaded = LoadedFile(config, weights, tokenizer, nibbles, stored_in, bytes_per_weight=held)
    return arranged(loaded, change_of(described))


def _are_equal(stored: SafetensorsWeights, one: str, other: str) -> bool:
    pair = stored.raw(one), stored.raw(other)
    return pair[0].dtype == pair[1].dtype and torch.equal(*pair)


def _shards(folder: Path) -> list[Path]:
    if (folder / INDEX).exists():
        try:
            names = [str(name) for name in sorted(set(read_json(folder / INDEX)["weight_map"].values()))]
        except (KeyError, TypeError, AttributeError) as error:
            raise ModelUnavailable(f"{folder / INDEX} has no weight_map from tensors to files.") from error
        if outside := [name for name in names if Path(name).name != name]:
            raise ModelUnavailable(f"{folder / INDEX} names {outside[0]!r}, which is not a file in its folder.")
        return [folder / name for name in names]
    files = sorted(folder.glob("*.safetensors"))
    if not files:
        raise ModelUnavailable(f"{folder} holds no safetensors file.")
    return files


def _read_header(path: Path) -> Iterator[tuple[str, _Stored]]:
    """Each tensor by its name. Raises ModelUnavailable for a file that is not whole, or a header larger than any
    model's."""
    try:
        file = OpenFile(path)
        size = int.from_bytes(file.read(0, 8).tobytes(), "little")
        if size > MOST_JSON_BYTES:
            raise ModelUnavailable(f"{path.name} is damaged: its header of {size} bytes is above {MOST_JSON_BYTES}.")
        with safe_open(path, framework="pt"):  # checks every type, shape and place
            header = json.loads(file.read(8, size).tobytes(), object_pairs_hook=_without_doubles)
    except (SafetensorError, OSError, ValueError, RecursionError) as error:
        raise ModelUnavailable(f"{path.name} is not a whole safetensors file ({error}).") from error
    for name, told in header.items():
        if name != "__metadata__":
            start, end = (8 + size + offset for offset in told["data_offsets"])
            yield name, _Stored(file, told["dtype"], tuple(told["shape"]), start, end)


def _without_doubles(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """Readers differ on which of two equal names counts."""
    if len(found := dict(pairs)) < len(pairs):
        raise ValueError("two of its tensors, or of a tensor's fields, have one name")
    return found


def read_json(path: Path) -> dict[str, Any]:
    """Parses a JSON object; raises ModelUnavailable."""
    try:
        if path.stat().st_size > MOST_JSON_BYTES:
            raise ValueError(f"it has more than {MOST_JSON_BYTES} bytes")
        raw = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError) as error:
        raise ModelUnavailable(f"Cannot read {path} ({error}).") from error
    if not isinstance(raw, dict):
        raise ModelUnavailable(f"{path} holds no JSON object.")
    return raw


def _load_tokenizer(folder: Path, config: dict[str, Any]) -> Tokenizer:
    path = folder / "tokenizer.json"
    if not path.exists():
        raise ModelUnavailable(f"{folder} holds no tokenizer.json.")
    try:
        with panics_told():
            fast = FastTokenizer.from_file(str(path))
            # Left over from training; prompts are neither truncated nor padded.
            fast.no_truncation()
            fast.no_padding()
            probe = fast.encode("a").ids
    # The tokenizers library raises bare Exception for a damaged file.
    except Exception as error:
        raise ModelUnavailable(f"{path} is damaged ({error}).") from error
    names = ("special_tokens_map.json", "tokenizer_config.json")
    older, settings = (_optional_json(folder / name, TokenizerSettings) for name in names)
    settings = older | settings
    bos = _special_id(fast, settings, "bos_token") if "bos_token" in settings else config.get("bos_token_id")
    own_end = _special_id(fast, settings, "eos_token")
    ends = _eos_token_ids(folder, config)
    return Tokenizer(
        fast,
        chat_template=_chat_template(folder, settings, "default"),
        tool_template=_chat_template(folder, settings, "tool_use"),
        bos_token_id=bos,
        # Templates use the tokenizer's own end token, which many configurations do not list.
        eos_token_ids=ends if own_end is None else [own_end, *(end for end in ends if end != own_end)],
        adds_bos=bool(probe) and probe[0] == bos,
    )


def _special_id(fast: FastTokenizer, settings: dict[str, Any], name: str) -> int | None:
    """The id of the special token of that name in the tokenizer's settings, given as text or with properties."""
    named = settings.get(name)
    text = named.get("content") if isinstance(named, dict) else named
    return fast.token_to_id(text) if isinstance(text, str) else None


def _optional_json(path: Path, types: Any) -> dict[str, Any]:
    raw = read_json(path) if path.exists() else {}
    check_types(raw, types, str(path))
    return raw


def _chat_template(folder: Path, settings: dict[str, Any], name: str) -> str | None:
    """The template of that name: a file, or one in the tokenizer's settings, where a text is the default one."""
    file = folder / ("chat_template.jinja" if name == "default" else f"additional_chat_templates/{name}.jinja")
    if file.is_file():
        try:
            return file.read_text(encoding="utf-8")
        except (OSError, ValueError) as error:
            raise ModelUnavailable(f"Cannot read {file} ({error}).") from error
    template = settings.get("chat_template")
    if isinstance(template, list):
        template = {entry["name"]: entry["template"] for entry in template}
    return template.get(name) if isinstance(template, dict) else template if name == "default" else None


def _eos_token_ids(folder: Path, config: dict[str, Any]) -> list[int]:
    settings = _optional_json(folder / "generation_config.json", ConfigJson)
    found = settings.get("eos_token_id", config.get("eos_token_id"))
    if found is None:
        return []
    ids: list[int] = found if isinstance(found, list) else [found]
    return [token for token in ids if token >= 0]  # some files use -1 for none
