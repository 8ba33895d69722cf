"""ECharts options as plain values. Colours are readable on light and dark backgrounds; every axis states its unit."""

from collections.abc import Iterable, Sequence
from datetime import datetime, timedelta
from typing import Any
from unicodedata import east_asian_width

from dashboards.ticks import named_times

COLOURS = ("#2a9d8f", "#b77a0f", "#5b80c8", "#c65d75", "#815d9b", "#548129", "#b38959", "#7f99b4")
"""Distinguishable with any colour blindness (red, green or blue); tests measure it."""
INK = "#7e7d78"
FAINT = "rgba(136,136,130,0.22)"
BAND = "rgba(224,160,48,0.4)"
"""For the interval around a line in the second colour: the legend must tell the two apart."""
PHONE_PIXELS = 420
LONG_NAME, LONG_ON_A_PHONE = 34, 22
"""Characters that fit on one line beside a horizontal bar."""
LEGEND_LINE_PIXELS = 20
MOST_LEGEND_LINES = 4
RESAMPLES = "nine in ten resamples of days"
BELOW = {"nameLocation": "middle", "nameGap": 26}
"""Where the name of an axis stands: below the middle of it."""
MOST_SERIES = len(COLOURS)
"""One per colour, so that no colour stands for two names."""
Options = dict[str, Any]
DOLLARS = """(value) => value == null ? '–' : (value < 0 ? '−$' : '$') + Math.abs(value).toLocaleString('en-US',
  Math.abs(value) < 1 ? {maximumSignificantDigits: 3} : {minimumFractionDigits: 2, maximumFractionDigits: 2})"""
DOLLAR_TICK = "(value) => (value < 0 ? '−$' : '$') + Math.abs(value).toLocaleString('en-US')"
CENT_TICK = """(value) => (value < 0 ? '−$' : '$') + Math.abs(value).toLocaleString('en-US',
  {minimumFractionDigits: value ? 2 : 0, maximumFractionDigits: 12})"""
LEAST_IN_DOLLARS = 3.5
"""From this length on, an axis has ticks at least a dollar apart: ECharts aims at five, 1, 2, 3 or 5 times a power of
ten apart. A shorter axis shows cents at every tick."""
PER_CENT = "(value) => value + ' %'"
A_DAY = "({value}) => Math.round(value).toLocaleString('en-US') + ' requests a day'"
MOMENT = """({value}) => {
  const day = { day: 'numeric', month: 'short', year: 'numeric' }, clock = { hour: '2-digit', minute: '2-digit' };
  const said = (form) => new Date(value).toLocaleString('en-GB', { timeZone: 'UTC', ...form });
  return said(day) + (value % 86400000 ? `, ${said(clock)} UTC` : '');
}"""
ON_ONE_LINE, ON_TWO_LINES = "(name) => name", r"(name) => name.replace(' · ', '\n')"
"""JavaScript formatters: the page framework treats an option whose name begins with a colon as code."""


def base(*, unit: str = "", is_time: bool = False, categories: Sequence[str] = ()) -> Options:
    """Axes, grid, legend and a tooltip; the caller adds series."""
    axis: Options = {
        "axisLabel": {"color": INK, "hideOverlap": True},
        "nameTextStyle": {"color": INK},
        "axisLine": {"lineStyle": {"color": FAINT}},
        "axisTick": {"show": False},
        "splitLine": {"show": False},
    }
    times = {**axis, "type": "time", "axisPointer": {"label": {":formatter": MOMENT}}}
    across = times if is_time else {**axis, "type": "category", "data": list(categories)}
    return {
        "useUTC": True,
        "color": list(COLOURS),
        "animation": False,
        "aria": {"enabled": True},
        "textStyle": {"fontFamily": "inherit"},
        "grid": {"left": 8, "right": 26, "top": 34 if unit else 12, "bottom": 30, "containLabel": True},
        "legend": {
            "bottom": 0,
            "type": "scroll",
            "icon": "roundRect",
            "itemWidth": 10,
            "itemHeight": 10,
            "textStyle": {"color": INK},
        },
        "tooltip": {"trigger": "axis", "confine": True, "axisPointer": {"type": "shadow"}},
        "xAxis": across,
        "yAxis": {
            **axis,
            "type": "value",
            "name": unit,
            "nameTextStyle": {"color": INK, "align": "left"},
            "nameGap": 14,
            "splitLine": {"lineStyle": {"color": FAINT}},
        },
        "series": [],
    }


def on_a_phone(options: Options) -> Options:
    """On a phone, the names of a few series are listed below each other, rather than on one line with arrows."""
    names = options["legend"].get("data") or [one["name"] for one in options["series"]]
    if 1 < len(names) <= MOST_LEGEND_LINES:
        options["legend"]["type"] = "plain"
        bottom = options["grid"]["bottom"] + LEGEND_LINE_PIXELS * (len(names) - 1)
        wide = {"legend": {"orient": "horizontal", "left": "center"}, "grid": {"bottom": options["grid"]["bottom"]}}
        narrow = {"legend": {"orient": "vertical", "left": 8}, "grid": {"bottom": bottom}}
        options["media"] = _media(narrow, wide)
    return options


def _media(narrow: Options, wide: Options) -> list[Options]:
    """What changes on a phone, and what restores it when the phone is turned: ECharts does not revert it."""
    return [{"query": {"maxWidth": PHONE_PIXELS}, "option": narrow}, {"option": wide}]


def over_time(options: Options, starts: Sequence[str], each: str) -> Options:
    """Adds the labels of a time axis on which an `each` (hour, day, …) begins at each of `starts`."""
    options["xAxis"]["axisLabel"] = {**options["xAxis"]["axisLabel"], **named_times(starts, each)}
    return options


def in_dollars(options: Options, amounts: Iterable[float], *, axis: str = "yAxis") -> Options:
    """Ticks and tooltips as dollars; `amounts` are what is drawn along that axis."""
    drawn = [0.0, *amounts]
    tick = DOLLAR_TICK if max(drawn) - min(drawn) >= LEAST_IN_DOLLARS else CENT_TICK
    options[axis]["axisLabel"] = {**options[axis]["axisLabel"], ":formatter": tick}
    options["tooltip"] = {**options["tooltip"], ":valueFormatter": DOLLARS}
    return options


def stacked_bars(points: Sequence[tuple[str, str, float]], *, each: str = "day") -> Options:
    """One bar per start, stacked by name with the largest at the bottom. `points` are (start, name, dollars); `each` is
    the length of time of a bar.

    If there are more names than colours, the smallest are combined into one series on top, in the last colour.
    """
    starts = sorted({start for start, _, _ in points})
    totals: dict[str, float] = {}
    for _, name, value in points:
        totals[name] = totals.get(name, 0.0) + value
    ordered = sorted(totals, key=lambda name: -totals[name])
    if len(ordered) > MOST_SERIES:
        kept = ordered[: MOST_SERIES - 1]
        ordered = [*kept, f"{len(ordered) - len(kept)} others"]
    values: dict[tuple[str, str], float] = {}
    for start, name, value in points:
        shown = name if name in ordered else ordered[-1]
        values[start, shown] = values.get((start, shown), 0.0) + value
    bars = (sum(values.get((start, name), 0.0) for name in ordered) for start in starts)
    options = over_time(in_dollars(base(is_time=True), bars), starts, each)
    options["series"] = [
        {
            "name": name,
            "type": "bar",
            "stack": "all",
            "barMaxWidth": 26,
            "data": [[start, round(values.get((start, name), 0.0), 8)] for start in starts],
        }
        for name in ordered
    ]
    return on_a_phone(options)


def rows(names: Sequence[str], values: Sequence[float]) -> Options:
    """Horizontal bars of dollars, the first name on top."""
    options = base(categories=list(reversed(names)))
    options["xAxis"], options["yAxis"] = options["yAxis"], options["xAxis"]
    in_dollars(options, values, axis="xAxis")
    lines = ON_TWO_LINES if any(len(name) > LONG_NAME for name in names) else ON_ONE_LINE
    label: Options = {"overflow": "truncate", "fontSize": 12, "lineHeight": 13, ":formatter": lines}
    label["width"] = _cut_at(260, names, LONG_NAME)
    options["yAxis"]["axisLabel"] = {"color": INK, **label}
    options["legend"] = {"show": False}
    options["series"] = [{"type": "bar", "barMaxWidth": 22, "data": list(reversed(values))}]
    last_label = f"${max(values, default=0):,.0f}"  # about half of it is beyond the axis
    options["grid"] |= {"bottom": 8, "right": max(26, 4 * len(last_label))}
    narrow = {**label, "fontSize": 10, "lineHeight": 12, ":formatter": ON_TWO_LINES}
    narrow["width"] = _cut_at(135, names, LONG_ON_A_PHONE)
    few, many = {"splitNumber": 3}, {"splitNumber": 5}  # with more, every second label has no room
    options["media"] = _media(
        {"xAxis": few, "yAxis": {"axisLabel": narrow}}, {"xAxis": many, "yAxis": {"axisLabel": label}}
    )
    return options


def _cut_at(pixels: int, names: Sequence[str], letters: int) -> int | None:
    """None if every line fits: ECharts reserves a given width even if the names are shorter."""
    lines = (line for name in names for line in name.split(" · "))
    return pixels if any(_columns(line) > letters for line in lines) else None


def _columns(text: str) -> int:
    """Chinese, Japanese and Korean letters and emoji are twice as wide."""
    return sum(2 if east_asian_width(letter) in "WF" else 1 for letter in text)


def used_and_paid(points: Sequence[tuple[str, float, float]], break_even: float | None) -> Options:
    """GPU utilisation by the hour in per cent: used, the idle rest, and the line above which owning pays."""
    options = over_time(base(unit="% of paid GPU time", is_time=True), [start for start, *_ in points], "hour")
    options["tooltip"][":valueFormatter"] = PER_CENT
    used: list[tuple[str, float]] = [
        (start, round(100 * used / paid, 2) if paid else 0.0) for start, used, paid in points
    ]
    if used:
        last, share = used[-1]
        used.append(((datetime.fromisoformat(last) + timedelta(hours=1)).isoformat(), share))  # until the hour's end
    series = _line("used", used, step="end", areaStyle={"opacity": 0.35})
    options["series"] = [series]
    options["yAxis"]["max"] = 100
    if break_even is not None and break_even <= 1:
        said = f"pays above {100 * break_even:.1f} % of the time"
        series["markLine"] = _mark_line(said, COLOURS[1], "insideEndTop", yAxis=round(100 * break_even, 1))
    return options


def cost_curves(points: Sequence[dict[str, Any]], here: float, pays_from: dict[str, Any] | None) -> Options:
    """Monthly bills by volume: everything hosted, and the cheapest own fleet as a staircase with its interval.

    `pays_from` is the volume from which owning pays, with the bill there, as in the report. Without one the mark has no
    data, because ECharts would keep the one that it drew before.
    """
    bills = (p[key] for p in points for key in ("hosted_usd", "owned_usd") if p[key] is not None)
    options = _by_number(in_dollars(base(), bills), "requests / day")
    options["grid"] |= {"top": 26, "bottom": 62}
    options["xAxis"]["axisPointer"] = {"label": {":formatter": A_DAY}}
    volumes = [(round(p["requests_per_day"], 2), p) for p in points]
    lines = {"everything hosted": "hosted_usd", "own GPUs, rest hosted": "owned_usd"}
    options["series"] = [
        _line(name, [(at, p[key]) for at, p in volumes if p[key] is not None], lineStyle={"width": 2.4})
        for name, key in lines.items()
    ]
    band = [(at, p["owned_low_usd"], p["owned_high_usd"]) for at, p in volumes if p["owned_low_usd"] is not None]
    options["legend"]["data"] = [*lines, *([RESAMPLES] if band else [])]
    options["series"] += _band(RESAMPLES, band) if band else []
    most = points[-1]["requests_per_day"]
    # Centred on a line far on the left, the label would cover the axis' highest number.
    align = "left" if here < most / 4 else "center"
    mark = _mark_line("you are here", COLOURS[3], "end", align=align, xAxis=round(here, 2))
    options["series"][0]["markLine"] = mark
    if pays_from is not None and pays_from["requests_per_day"] <= most:
        is_right = pays_from["requests_per_day"] > most / 2
        options["series"][0]["markPoint"] = _pays_from(pays_from, is_right=is_right)
        return _said_shorter_on_a_phone(on_a_phone(options))
    options["series"][0]["markPoint"] = {"data": []}
    return on_a_phone(options)


def _said_shorter_on_a_phone(options: Options) -> Options:
    """On a phone the crossing's full label would cover the numbers of the axis."""
    whole = options["series"][0]["markPoint"]["label"]["formatter"]
    for media, said in zip(options["media"], (whole.removeprefix("owning pays "), whole), strict=True):
        media["option"]["series"] = [{"markPoint": {"label": {"formatter": said}}}]
    return options


def _pays_from(volume: dict[str, Any], *, is_right: bool) -> Options:
    """The crossing, labelled with its volume where there is room: above it to the left, or below it to the right."""
    requests = volume["requests_per_day"]
    return {
        "silent": True,
        "symbol": "circle",
        "symbolSize": 11,
        "itemStyle": {"color": COLOURS[3]},
        "label": {
            "formatter": f"owning pays from {requests:,.0f} a day",
            "color": INK,
            "position": "top" if is_right else "bottom",
            "distance": 10,
            "align": "right" if is_right else "left",
            "fontWeight": "bold",
        },
        "data": [{"coord": [round(requests, 2), float(volume["hosted_usd_per_month"])]}],
    }


def tornado(swings: Sequence[tuple[str, float, float]], middle: float) -> Options:
    """How the monthly saving changes with each input a quarter lower or higher, the strongest on top."""
    ordered = sorted(swings, key=lambda one: abs(one[2] - one[1]))
    options = base(unit="", categories=[name for name, _, _ in ordered])
    options["xAxis"], options["yAxis"] = options["yAxis"], options["xAxis"]
    options["xAxis"] |= {"name": "change of the saving a month", **BELOW}
    options["xAxis"]["nameTextStyle"] = {"color": INK, "align": "center"}
    options["grid"]["bottom"] = 62
    options["tooltip"]["trigger"] = "item"
    in_dollars(options, (end - middle for _, *ends in swings for end in ends), axis="xAxis")
    options["series"] = [
        {
            "name": name,
            "type": "bar",
            "stack": "one",
            "barMaxWidth": 20,
            "data": [round((low, high)[index] - middle, 4) for _, low, high in ordered],
        }
        for name, index in (("25 % lower", 0), ("25 % higher", 1))
    ]
    return options


def throughput(points: Sequence[tuple[int, float]], working: int | None) -> Options:
    """Tokens per second of all sequences together, by concurrency."""
    options = _by_number(base(unit="tokens / s, all sequences"), "sequences at once")
    options["legend"] = {"show": False}
    series: Options = {"type": "line", "symbolSize": 8, "data": [list(point) for point in points]}
    options["series"] = [series]
    if working is not None:
        mark = _mark_line(f"working point {working}", COLOURS[1], "end", align="right", xAxis=working)
        series["markLine"] = mark
    return options


def forecast(history: Sequence[tuple[str, float]], ahead: Sequence[tuple[str, float, float, float]]) -> Options:
    """Past days as bars, and days to come (day, low, expected, high) as a line within its interval. UTC days."""
    history = [(f"{day}T00:00Z", usd) for day, usd in history]
    ahead = [(f"{day}T00:00Z", low, usd, high) for day, low, usd, high in ahead]
    amounts = [usd for _, usd in history] + [high for *_, high in ahead]
    days = [day for day, *_ in (*history, *ahead)]
    options = over_time(in_dollars(base(unit="a day", is_time=True), amounts), days, "day")
    options["legend"]["data"] = ["spent", "expected", "5–95 %"]
    options["series"] = [
        {"name": "spent", "type": "bar", "barMaxWidth": 14, "data": [[day, round(usd, 8)] for day, usd in history]},
        _line("expected", [(day, usd) for day, _, usd, _ in ahead], color=COLOURS[1]),
        *_band("5–95 %", [(day, low, high) for day, low, _, high in ahead]),
    ]
    return on_a_phone(options)


def _by_number(options: Options, name: str) -> Options:
    """Makes the axis below one of numbers from 0 on."""
    options["xAxis"] |= {"type": "value", "name": name, "min": 0, **BELOW}
    return options


def _line(name: str, points: Iterable[tuple[str | float, float]], **more: Any) -> Options:
    data = [[x, round(y, 8)] for x, y in points]
    return {"name": name, "type": "line", "showSymbol": False, "data": data, **more}


def _band(name: str, points: Sequence[tuple[str | float, float, float]]) -> list[Options]:
    """The interval between two values (x, low, high), as what is stacked on an invisible line."""
    edge: Options = {"lineStyle": {"opacity": 0}, "stack": "band", "silent": True, "tooltip": {"show": False}}
    filled = {"color": BAND, "areaStyle": {"opacity": 0.45, "color": BAND}, **edge}
    return [
        _line("low", [(x, low) for x, low, _ in points], **edge),
        _line(name, [(x, high - low) for x, low, high in points], **filled),
    ]


def _mark_line(said: str, colour: str, position: str, *, align: str | None = None, **at: float) -> Options:
    """A dashed line across the chart, with its label."""
    label = {"formatter": said, "color": INK, "position": position} | ({"align": align} if align else {})
    style = {"color": colour, "type": "dashed", "width": 2}
    return {"silent": True, "symbol": "none", "lineStyle": style, "label": label, "data": [at]}
