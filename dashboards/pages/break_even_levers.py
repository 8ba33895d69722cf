"""The sliders of the break-even page on the screen. What they mean is in dashboards.levers."""

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

from nicegui import ui

from dashboards.frame import grid
from dashboards.levers import LEVERS, UTILISATION, Lever, utilisation_at, volume_at

PAUSE_SECONDS = 0.3
"""A handle that rests this long counts as released."""
NAME = "import(window.path_prefix + '/static/sliders.js').then((sliders) => sliders.name())"
Ask = Callable[[dict[str, str]], Awaitable[None]]
Link = Callable[..., str]


class Levers:
    """Holds the values that were moved. Others are not sent to the gateway, and so stay as observed."""

    def __init__(self, found: Mapping[str, Any], given: Mapping[str, str | None], ask: Ask, link: Link) -> None:
        self._ask = ask
        self._link = link
        self._moved = {name: value for name, value in given.items() if value is not None}
        self._inputs: Mapping[str, Any] = found["inputs"]
        report = found["report"]
        asked_volume = float(self._inputs["volume_factor"])
        self._observed = {
            "requests_per_day": report["observed"]["requests_per_day"] / asked_volume,
            "gpu_seconds_per_request": report["unit"]["gpu_seconds_per_request"],
        }
        self._moves = 0
        self._is_placing = False
        self._sliders: dict[str, tuple[Lever, ui.slider, ui.label]] = {}
        with grid("be-levers"):
            for lever in LEVERS:  # the gateway names no factor that it was not asked for
                self._slider(lever, float(self._moved.get(lever.name) or self._inputs.get(lever.name) or 1.0))
                if lever.name == "volume_factor":
                    self._slider(UTILISATION, self._utilisation())
        self._others(found)
        ui.run_javascript(NAME)

    def _slider(self, lever: Lever, value: float) -> None:
        low, high = lever.bounds()
        with ui.element("div").classes("be-lever"):
            with ui.element("div").classes("be-lever-head"):
                ui.label(lever.label)
                reads = ui.label(lever.says(value)).classes("be-lever-value")
            slider = ui.slider(min=low, max=high, step=lever.step, value=lever.position(value))
            slider.props(f'aria-label="{lever.label}"')
        self._sliders[lever.name] = (lever, slider, reads)

        async def moving(position: float | None) -> None:
            value = lever.value(low if position is None else position)
            reads.set_text(lever.says(value))
            self._moves += 1
            move = self._moves
            await asyncio.sleep(PAUSE_SECONDS)
            if move == self._moves:
                await self._moved_to(lever, value)

        slider.on_value_change(lambda event: None if self._is_placing else moving(event.value))

    def _others(self, found: Mapping[str, Any]) -> None:
        with grid("be-filters"):
            names: list[str] = found["hosted_models"]
            model = ui.select(names, value=self._inputs.get("hosted_model"), label="Compared with")
            model.props("dense outlined").style("min-width: min(16rem, 100%)")
            self._whose_gpus(found["backends"])
            buy = ui.number("Or buy the GPUs for, $", value=_number(self._moved.get("purchase_usd")), min=1)
            buy.props("dense outlined debounce=600").classes("be-rule-name")
            reset = ui.button("Reset").props("no-caps outline")

        async def chosen(name: str, value: object) -> None:
            if value is None:
                self._moved.pop(name, None)
            else:
                self._moved[name] = str(value)
            await self._send()

        model.on_value_change(lambda event: chosen("hosted_model", event.value))
        buy.on_value_change(lambda event: chosen("purchase_usd", event.value))
        reset.on_click(lambda: ui.navigate.to("/break-even"))

    def _whose_gpus(self, backends: list[str]) -> None:
        """Other GPUs have another price and speed, so the page begins anew."""
        if len(backends) < 2:
            return
        select = ui.select(backends, value=self._inputs["backend"], label="Own GPUs")
        select.props("dense outlined").style("min-width: min(12rem, 100%)")
        select.on_value_change(lambda event: ui.navigate.to(self._link("/break-even", backend=str(event.value))))

    async def _moved_to(self, lever: Lever, value: float) -> None:
        if lever is UTILISATION:
            self._moved["volume_factor"] = f"{volume_at(value, self._replicas(), self._observed):.4g}"
            self._place("volume_factor", float(self._moved["volume_factor"]))
        else:
            self._moved[lever.name] = f"{value:g}"
            self._place(UTILISATION.name, self._utilisation())
        await self._send()

    def _place(self, name: str, value: float) -> None:
        lever, slider, reads = self._sliders[name]
        self._is_placing = True
        slider.set_value(lever.position(value))
        self._is_placing = False
        reads.set_text(lever.says(value))

    def _utilisation(self) -> float:
        volume = float(self._moved.get("volume_factor") or 1.0)
        return utilisation_at(volume, self._replicas(), self._observed)

    def _replicas(self) -> float:
        return float(self._moved.get("replicas") or self._inputs["replicas"])

    async def _send(self) -> None:
        await self._ask(dict(self._moved))


def _number(text: str | None) -> float | None:
    return None if text is None else float(text)
