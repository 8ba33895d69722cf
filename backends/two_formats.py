"""One provider endpoint with two wire formats: calls native to the second format go to its adapter unchanged."""

from collections.abc import Collection, Sequence

from backends.model_lists import ListsModels, ModelList
from backends.protocol import Backend, BackendHealth, Call, Operation, Reply


class TwoFormatsBackend:
    """`second` gets the operations in `of_second`, `first` all others and the health checks. Both have the same name
    and key."""

    def __init__(self, first: Backend, second: Backend, *, of_second: Collection[Operation]) -> None:
        self._first = first
        self._second = second
        self._of_second = of_second

    @property
    def name(self) -> str:
        return self._first.name

    @property
    def is_simulated(self) -> bool:
        return self._first.is_simulated

    async def open(self, call: Call) -> Reply:
        return await (self._second if call.operation in self._of_second else self._first).open(call)

    async def model_lists(self) -> Sequence[ModelList]:
        """See ListsModels; empty if the backend does not support it."""
        return await self._first.model_lists() if isinstance(self._first, ListsModels) else ()

    async def health(self) -> BackendHealth:
        return await self._first.health()

    async def aclose(self) -> None:
        await self._first.aclose()
        await self._second.aclose()
