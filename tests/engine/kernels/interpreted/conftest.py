# pyright: reportPrivateUsage=false
"""Triton's interpreter puts its language in place anew at every launch and every call of a device function, and looks
through all that the language has for it: a third of these tests' time. Nothing is compiled in this process, so once is
enough."""

from collections.abc import Callable
from typing import Any

import pytest
import triton.language as tl
from triton.runtime import interpreter


@pytest.fixture(scope="session", autouse=True)
def language_put_in_place_once() -> None:
    put_in_place: Callable[[Any], Any] = interpreter._patch_lang
    known: set[tuple[int, ...]] = set()

    def once(function: Any) -> Any:
        languages = tuple(id(one) for one in function.__globals__.values() if one is tl or one is tl.core)
        if languages not in known:
            known.add(languages)
            put_in_place(function)
        return interpreter._LangPatchScope()

    interpreter._patch_lang = once
