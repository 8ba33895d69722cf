"""Shows a slow page before it is complete: its frame with a note that more is coming, then the rest. Knows nothing of
what is on a page."""

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

from nicegui import ui

PATIENCE_SECONDS = 1.0
"""A page that takes longer shows a message first; a faster one is sent in one piece."""
WAITING = (
    '<p class="be-note be-building" role="status">The gateway is still working on this page. It will appear by '
    "itself; other pages can be opened meanwhile.</p>"
)


@asynccontextmanager
async def shown_early(place: ui.element) -> AsyncGenerator[None]:
    """Wraps the code that builds the page in `place`."""
    client, words = ui.context.client, list[ui.element]()

    async def show() -> None:
        await asyncio.sleep(PATIENCE_SECONDS)
        with place:
            words.append(ui.html(WAITING, sanitize=False))
        await client.connected()  # sends the page as it stands

    showing = asyncio.create_task(show())
    try:
        yield
    finally:
        showing.cancel()
        for word in words:
            word.delete()
