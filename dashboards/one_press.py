"""A button that is answered once: presses until then do nothing, since each would make another key. Knows no page.

A button that rests loses the focus, and whoever presses keys would stand at the top of the page: it gets it back.
"""

from collections.abc import Awaitable, Callable

from nicegui import ui

GIVE_BACK = "setTimeout(() => document.activeElement === document.body && getHtmlElement({id})?.focus(), 50)"
"""Once the browser has heard that the button works again, unless the focus went elsewhere meanwhile."""


def give_back_focus(button: ui.button) -> None:
    ui.run_javascript(GIVE_BACK.format(id=button.id))


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
            give_back_focus(button)

    button.on_click(pressed)
    return pressed
