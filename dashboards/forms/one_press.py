"""A button that ignores presses while one is being handled, since each would create another key. Knows no page.

A disabled button loses the focus, which would send keyboard users to the top of the page, so it is given back.
"""

from collections.abc import Awaitable, Callable

from nicegui import ui

GIVE_BACK = "setTimeout(() => document.activeElement === document.body && getHtmlElement({id})?.focus(), 50)"
"""Waits until the browser has enabled the button again; does nothing if the focus has moved elsewhere meanwhile."""


def give_back_focus(button: ui.button) -> None:
    ui.run_javascript(GIVE_BACK.format(id=button.id))


def on_press(button: ui.button, do: Callable[[], Awaitable[None]]) -> Callable[[], Awaitable[None]]:
    """Run `do` on a press. Returns the handler, so that Enter in a field can call it too."""

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
