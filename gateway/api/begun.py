"""An answer that is never held whole."""

from collections.abc import AsyncIterator


async def begun(parts: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
    """The same parts. What fails before the first is raised here, and can be told as an error; what fails later cuts
    the answer off, which shows: its end is missing."""
    first = await anext(parts, None)

    async def all_of_it() -> AsyncIterator[bytes]:
        if first is not None:
            yield first
        async for part in parts:
            yield part

    return all_of_it()
