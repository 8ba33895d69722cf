"""What LiteLLM's files include is merged as LiteLLM does it: the very function is asked where it is installed."""

import asyncio
import importlib
import logging
import runpy
import sys
from collections.abc import Mapping
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from gateway.errors import ConfigurationError
from gateway.from_litellm.includes import merge_includes

Files = Mapping[str, Mapping[str, Any]]
ONE, TWO = {"model_name": "one"}, {"model_name": "two"}
CASES: list[Files] = [
    {"/c/config.yaml": {"include": ["m.yaml"], "model_list": [ONE]}, "/c/m.yaml": {"model_list": [TWO], "a": 1}},
    {
        "/c/config.yaml": {"include": ["m.yaml"], "s": {"x": 1, "y": 2}},
        "/c/m.yaml": {"s": {"x": 3}, "model_list": [ONE]},
    },
    {  # breadth first, each beside the file that names it, once
        "/c/config.yaml": {"include": ["d/m.yaml", "n.yaml"], "l": [0]},
        "/c/d/m.yaml": {"include": ["k.yaml", "../config.yaml"], "l": [1], "s": 1},
        "/c/d/k.yaml": {"l": [3], "s": 3},
        "/c/n.yaml": {"include": ["d/m.yaml"], "l": [2], "s": 2},
    },
    {  # as files within files were found before: beside the first
        "/c/config.yaml": {"include": ["d/m.yaml"]},
        "/c/d/m.yaml": {"include": ["k.yaml"]},
        "/c/k.yaml": {"l": [1]},
    },
    {  # in both places
        "/c/config.yaml": {"include": ["d/m.yaml"]},
        "/c/d/m.yaml": {"include": ["k.yaml"]},
        "/c/d/k.yaml": {"l": [1]},
        "/c/k.yaml": {"l": [2]},
    },
    {"/c/config.yaml": {"include": ["/e/m.yaml"], "l": None}, "/e/m.yaml": {"l": [1]}},
    {"/c/config.yaml": {"include": [], "l": 1}},
]


def merged(files: Files) -> tuple[Mapping[str, Any], str]:
    made = merge_includes(
        files["/c/config.yaml"], "/c/config.yaml", read=files.__getitem__, is_there=files.__contains__
    )
    return made.root, "\n".join(made.notes)


def test_lists_go_on_and_sections_are_the_last_files() -> None:
    assert merged(CASES[0])[0] == {"model_list": [ONE, TWO], "a": 1}
    root, said = merged(CASES[1])
    assert root == {"s": {"x": 3}, "model_list": [ONE]}
    assert said.startswith("s: all of it is as /c/m.yaml says, nothing as /c/config.yaml does")
    assert merged(CASES[2])[0] == {"l": [0, 1, 2, 3], "s": 3}
    assert merged(CASES[3])[0] == {"l": [1]}
    root, said = merged(CASES[4])
    assert root == {"l": [1]}
    assert "/c/k.yaml was not read" in said


@cache
def litellms_includes() -> Any:
    """Its module alone, with a logger in place of LiteLLM's: importing all of LiteLLM takes seconds."""
    package = find_spec("litellm")
    if package is None or not package.submodule_search_locations:
        pytest.skip("compares with LiteLLM's own; `pip install 'breakeven[litellm]'` brings it")
    file = Path(package.submodule_search_locations[0], "proxy/common_utils/config_includes.py")
    log = SimpleNamespace(verbose_proxy_logger=logging.getLogger(__name__))
    with pytest.MonkeyPatch.context() as patch:
        for name, module in (("litellm", SimpleNamespace()), ("litellm._logging", log)):
            patch.setitem(sys.modules, name, module)
        return SimpleNamespace(**runpy.run_path(str(file)))


@pytest.mark.parametrize("files", CASES)
def test_the_result_is_litellms(files: Files, monkeypatch: pytest.MonkeyPatch) -> None:
    theirs = litellms_includes()
    paths = importlib.import_module("os.path")
    monkeypatch.setattr(paths, "exists", files.__contains__)

    async def read(location: str) -> Mapping[str, Any]:
        return files[location]

    def resolve(entry: str, declared_in: str) -> str:
        return theirs.resolve_include_file_path(entry, declared_in, "/c/config.yaml")

    wanted = theirs.resolve_includes(files["/c/config.yaml"], "/c/config.yaml", resolve, read)
    assert merged(files)[0] == asyncio.run(wanted)


@pytest.mark.parametrize(
    ("included", "what"),
    [("m.yaml", "must be a list of files"), ([1], "must be a list of files"), (["m.yaml"], "there is no /c/m.yaml")],
)
def test_what_cannot_be_included_is_said(included: object, what: str) -> None:
    with pytest.raises(ConfigurationError, match=what):
        merged({"/c/config.yaml": {"include": included}})
