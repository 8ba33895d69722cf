"""A button that is answered once: presses until then do nothing, since each would make another key. Knows no page."""

from collections.abc import Awaitable, Callable

from nicegui import ui


def on_press(button: ui.button, do: Callable[[], Awaitable[None]]) -> Callable[[], Awaitable[None]]:
    """What a press does, for a key that presses it too. Greyed, a button shows that something is under way."""

    async def pressed() -> None:
        if not button.enabled:
            return
        button.disable()
        try:
            await do()
        finally:
            button.enable()

    button.on_click(pressed)
    return pressed
