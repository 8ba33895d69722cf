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
def overflow_not_computed() -> None:
    """Omits what nothing reads: the interpreter also computes each sum, difference and product of integers in 64 bits,
    for an assertion that it then only makes in debug mode."""
    assert not interpreter.InterpreterOptions.debug
    interpreter.interpreter_builder.options = interpreter.InterpreterOptions(sanitize_overflow=False)


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
    """Caches the language's objects for a shape, so that equal shapes are one object. Invalid shapes are rejected each
    time."""
    core: Any = tl.core
    of_shapes: dict[object, Any] = {}
    of_types: dict[int, Any] = {}  # by the shape's identity, which stays its own: of_shapes keeps it
    of_values: dict[int, Any] = {}
    make_type = core.block_type.__init__

    def begin_type(self: Any, element_ty: Any, shape: Any) -> None:
        known = of_types.get(id(shape))
        if known is None:
            sizes = tuple([size.value if type(size) is core.constexpr else size for size in shape])
            asked = (sizes, tuple(map(type, sizes)))
            if asked not in of_shapes:
                make_type(self, element_ty, shape)
                of_shapes[asked] = of_types[id(self.shape)] = (self.shape, self.numel, str(self.shape))
                sized = core.tuple([core.constexpr(size) for size in sizes])
                of_values[id(self.shape)] = (core.constexpr(math.prod(sizes)), sized)
            known = of_shapes[asked]
        self.element_ty = element_ty
        self.shape, self.numel, name = known
        self.name = f"<{name}, {element_ty}>"

    of_scalars = (core.constexpr(1), core.tuple([]))

    def begin_value(self: Any, handle: Any, of: Any) -> None:
        self.handle, self.type, self.dtype = handle, of, of.scalar
        self.numel, self.shape = of_values[id(of.shape)] if of.is_block() else of_scalars

    core.block_type.__init__ = begin_type
    core.tensor.__init__ = begin_value


@pytest.fixture(scope="session", autouse=True)
def what_is_the_same_is_equal(shapes_made_once: None) -> None:
    """Operands of the same shape or type are neither broadcast nor cast, which is otherwise only found size by size and
    name by name."""
    language: Any = interpreter.TritonSemantic
    types: Any = tl.dtype
    broadcast, cast, equal = language.broadcast_impl_value, language.cast, types.__eq__

    def broadcast_others(self: Any, lhs: Any, rhs: Any) -> Any:
        if lhs.type.is_block() and rhs.type.is_block() and lhs.type.shape is rhs.type.shape:
            return lhs, rhs
        return broadcast(self, lhs, rhs)

    def cast_others(self: Any, value: Any, to: Any, fp_downcast_rounding: str | None = None) -> Any:
        return value if value.type.scalar is to.scalar else cast(self, value, to, fp_downcast_rounding)

    def equals(self: object, other: object) -> Any:
        return self is other or equal(self, other)

    language.broadcast_impl_value, language.cast, types.__eq__ = broadcast_others, cast_others, equals
