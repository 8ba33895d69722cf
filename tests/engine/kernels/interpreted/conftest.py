# pyright: reportPrivateUsage=false
"""Caches what Triton's interpreter repeats at every launch, or for every value of a kernel, which was more than half of
these tests' time. Safe, since nothing is compiled in this process, and there are only a few dozen types and shapes."""

import math
from collections.abc import Callable
from typing import Any

import pytest
import triton.language as tl
from triton.runtime import interpreter


@pytest.fixture(scope="session", autouse=True)
def language_put_in_place_once() -> None:
    """Patches the language once. Otherwise it is patched at every launch and every call of a device function, searching
    all of its members each time."""
    put_in_place: Callable[[Any], Any] = interpreter._patch_lang
    known: set[tuple[int, ...]] = set()

    def once(function: Any) -> Any:
        languages = tuple(id(one) for one in function.__globals__.values() if one is tl or one is tl.core)
        if languages not in known:
            known.add(languages)
            put_in_place(function)
        return interpreter._LangPatchScope()

    interpreter._patch_lang = once


@pytest.fixture(scope="session", autouse=True)
def numpys_types_known() -> None:
    """Caches numpy types by the names of Triton's, which identify them: for each lookup the interpreter builds a table
    of twenty."""
    ask: Callable[[Any], Any] = interpreter._get_np_dtype
    known: dict[str, Any] = {}

    def once(of: Any) -> Any:
        found = known.get(of.name)
        if found is None:
            found = known[of.name] = ask(of)
        return found

    interpreter._get_np_dtype = once


@pytest.fixture(scope="session", autouse=True)
def shapes_made_once() -> None:
    """Caches the language's objects for a shape. Invalid shapes are rejected each time."""
    core: Any = tl.core
    of_types: dict[object, Any] = {}
    of_values: dict[object, Any] = {}
    make_type = core.block_type.__init__

    def begin_type(self: Any, element_ty: Any, shape: Any) -> None:
        sizes = tuple([size.value if type(size) is core.constexpr else size for size in shape])
        asked = (type(shape), sizes, tuple(map(type, sizes)))
        if asked not in of_types:
            make_type(self, element_ty, shape)
            of_types[asked] = (self.shape, self.numel)
            return
        self.element_ty = element_ty
        self.shape, self.numel = of_types[asked]
        self.name = f"<{self.shape}, {element_ty}>"

    def begin_value(self: Any, handle: Any, of: Any) -> None:
        sizes = tuple(of.shape) if of.is_block() else ()
        if sizes not in of_values:
            of_values[sizes] = (core.constexpr(math.prod(sizes)), core.tuple([core.constexpr(size) for size in sizes]))
        self.handle, self.type, self.dtype = handle, of, of.scalar
        self.numel, self.shape = of_values[sizes]

    core.block_type.__init__ = begin_type
    core.tensor.__init__ = begin_value
