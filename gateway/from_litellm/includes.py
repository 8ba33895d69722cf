"""Files that LiteLLM's config.yaml includes, merged into it as LiteLLM 1.106 does. Pure: `read` opens them."""

import os
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, cast

from gateway.errors import ConfigurationError

INCLUDE: Final = "include"


@dataclass(frozen=True, slots=True)
class Merged:
    """`notes` name sections of one file that replace another's."""

    root: Mapping[str, Any]
    notes: Sequence[str]


def merge_includes(
    root: Mapping[str, Any],
    location: str,
    *,
    read: Callable[[str], Mapping[str, Any]],
    is_there: Callable[[str], bool],
) -> Merged:
    """An included file's lists are appended; any other section of it replaces the one before as a whole. Each file is
    read once, breadth first. Raises ConfigurationError."""
    merged = {name: value for name, value in root.items() if name != INCLUDE}
    said_in = dict.fromkeys(merged, location)
    notes: list[str] = []
    loaded, waiting = {location}, deque((entry, location) for entry in _entries(root, location))
    while waiting:
        entry, declared_in = waiting.popleft()
        at = _place(entry, declared_in, location, is_there, notes)
        if at in loaded:
            continue
        loaded.add(at)
        if not is_there(at):
            raise ConfigurationError(f"includes {entry}, and there is no {at}", file=declared_in)
        included = read(at)
        waiting += ((one, at) for one in _entries(included, at))
        for name, value in included.items():
            if name == INCLUDE:
                continue
            before = merged.get(name)
            if isinstance(before, list) and isinstance(value, list):
                value = [*cast("list[Any]", before), *cast("list[Any]", value)]
            elif name in merged and before != value:
                notes.append(
                    f"{name}: all of it is as {at} says, nothing as {said_in[name]} does: so LiteLLM takes a section "
                    "that is in both"
                )
            merged[name], said_in[name] = value, at
    return Merged(merged, notes)


def _entries(config: Mapping[str, Any], location: str) -> Sequence[str]:
    given = config.get(INCLUDE, [])
    if isinstance(given, list) and all(isinstance(one, str) for one in cast("list[object]", given)):
        return cast("list[str]", given)
    raise ConfigurationError("its `include` must be a list of files, as in [models.yaml]", file=location)


def _place(entry: str, declared_in: str, root: str, is_there: Callable[[str], bool], notes: list[str]) -> str:
    """Relative to the file that names it, or else to the root file, as LiteLLM did before includes could be nested."""
    beside, at_root = (os.path.abspath(os.path.join(os.path.dirname(one), entry)) for one in (declared_in, root))
    if beside == at_root or not is_there(at_root):
        return beside
    if not is_there(beside):
        return at_root
    notes.append(f"include: {entry} of {declared_in} is {beside}; {at_root} was not read, as LiteLLM does not")
    return beside
