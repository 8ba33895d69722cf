"""The frame around every page: navigation by role, period, theme, and what is shown when the gateway says no."""

import logging
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from html import escape
from http import HTTPStatus
from typing import Any, Literal

from nicegui import ui
from starlette.requests import Request

from dashboards import display, markup
from dashboards.charts import Options
from dashboards.forms.marked_fields import MarkedFields
from dashboards.forms.problem import form_problem, in_form_words
from dashboards.gateway_client import GatewayClient, GatewayRefused, GatewayUnreachable
from dashboards.periods import PRESETS, Period, below_ui, link, parse_period, preset
from dashboards.shown_early import shown_early
from dashboards.sign_in.destination import sign_in_address
from dashboards.sign_in.sessions import Session

FIRST_REQUEST = """\
curl {gateway}/v1/chat/completions \\
  -H "Authorization: Bearer $KEY" -H "Content-Type: application/json" \\
  -d '{{"model": "auto", "messages": [{{"role": "user", "content": "Say hello."}}]}}'"""
Size = Literal["", "tall", "short"]
LOG = logging.getLogger(__name__)
OF_ONE_PERIOD = frozenset({"period", "since", "until", "last", "before", "page"})
"""Query parameters of one period, or of a position in its list: links to another period drop them."""
AWAY_SECONDS = 3.0
"""How often a page checks whether an unreachable gateway is back."""
CANNOT_NOW = HTTPStatus.SERVICE_UNAVAILABLE
"""Of a gateway that runs without something that it needs, such as its database."""
ANEW_SECONDS = 10.0
ANEW = f"This page reloads every {ANEW_SECONDS:.0f} seconds until it can."
THEME_COOKIE = "breakeven_theme"
TOGGLE_THEME = """() => {
  const root = document.documentElement, now = document.body.classList.contains('body--dark');
  root.classList.toggle('be-dark', !now); root.classList.toggle('be-light', now);
  Quasar.Dark.set(!now);
  const kept = `;path=${window.path_prefix};samesite=lax;max-age=31536000`;
  document.cookie = 'breakeven_theme=' + (now ? 'light' : 'dark') + kept;
}"""

TOGGLE_MENU = """(event) => {
  const button = event.currentTarget, isOpen = button.closest('nav').classList.toggle('be-open');
  button.setAttribute('aria-expanded', isOpen);
}"""
BRAND = (
    '<a class="be-skip" href="#main">Skip to the page</a>'
    '<a class="be-brand" href="./"><img src="static/mark.svg" alt="" width="26" height="26">'
    "<span>Breakeven</span></a>"
)


@dataclass(frozen=True, slots=True)
class View:
    """What a page is built with."""

    gateway: GatewayClient
    session: Session
    request: Request
    period: Period

    def query(self, name: str) -> str | None:
        return self.request.query_params.get(name) or None

    def link(self, path: str, **query: str | None) -> str:
        return link(path, self.period, **query)


@dataclass(frozen=True, slots=True)
class PageSpec:
    """One page: who may see it (any of `permissions`) and how it is built. A page without a group is not in the
    navigation."""

    path: str
    title: str
    group: str
    permissions: tuple[str, ...]
    build: Callable[[View], Awaitable[None]]
    has_period: bool = False


def view_of(request: Request, session: Session, gateway: GatewayClient) -> View:
    return View(gateway, session, request, parse_period(request.query_params, datetime.now(UTC)))


async def show(spec: PageSpec, specs: Sequence[PageSpec], view: View) -> None:
    """Build one page inside its frame."""
    theme = view.request.cookies.get(THEME_COOKIE)
    ui.dark_mode(None if theme not in ("dark", "light") else theme == "dark")
    ui.add_head_html('<link rel="stylesheet" href="static/style.css">')
    for script in ("signed_out", "popped"):
        ui.add_head_html(f'<script type="module" src="static/{script}.js"></script>')
    if theme in ("dark", "light"):
        ui.add_head_html(f"<script>document.documentElement.classList.add('be-{theme}')</script>")
    ui.page_title(f"{spec.title} · Breakeven")
    around = ui.context.client.content.parent_slot
    assert around is not None
    around.parent.tag = "div"  # the framework's own <main>; ours is below
    with ui.element("div").classes("be-shell"):
        with ui.element("nav").classes("be-side").props('aria-label="Pages"'):
            html(BRAND)
            _button("Menu", TOGGLE_MENU, "be-menu").props('aria-expanded="false"')
            html(_navigation(spec, specs, view)).classes("be-pages")
            with ui.element("div").classes("be-who"):
                html(_who(view.session))
                _button("Light / dark", TOGGLE_THEME, "be-link")
        with ui.element("main").classes("be-main").props('id="main" tabindex="-1"') as main:
            html(_head(spec, view))
            if not view.session.may(*spec.permissions):
                html(
                    markup.message(
                        "Not for this role",
                        f"The role {view.session.role!r} does not include this page. An owner can give you a key "
                        "of another role.",
                        tone="warn",
                    )
                )
                return
            async with shown_early(main):
                await guarded(spec.build, view)


async def guarded(build: Callable[[View], Awaitable[None]], view: View) -> None:
    """Build the page, or say why it could not be built."""
    try:
        await build(view)
    except GatewayRefused as refused:
        if refused.status == CANNOT_NOW:
            html(markup.message("The gateway cannot answer now", f"{refused} {ANEW}", tone="bad"))
            ui.timer(ANEW_SECONDS, ui.navigate.reload, once=True)
            return
        is_askers = refused.status in (HTTPStatus.BAD_REQUEST, HTTPStatus.NOT_FOUND)
        title, tone = ("Nothing to show", "") if is_askers else ("The gateway refused this", "bad")
        html(markup.message(title, in_form_words(str(refused)), tone=tone))
        html(way_on(view, refused))
    except GatewayUnreachable as error:
        html(
            markup.message(
                "The gateway is not answering",
                f"{error} Your apps' requests do not depend on this page. Check that `breakeven serve` is running. "
                "If the gateway is down, this page reloads once it is back; if it was only slow, reload it yourself.",
                tone="bad",
            )
        )
        _load_once_back(view, is_away=error.is_away)
    except Exception:
        LOG.exception("a page could not be built")
        html(
            markup.message(
                "This page could not be built",
                "The gateway's answer is not what this page expects; it may be another version than the web UI. "
                "The web UI's log has the details. Other pages may work.",
                tone="bad",
            )
        )


def refusal(view: View, error: Exception) -> str:
    """The message of a form: what is wrong, and a link if the user can do something about it elsewhere."""
    return form_problem(error) + way_on(view, error)


async def attempt(view: View, change: Awaitable[Any], marked: MarkedFields, *, afterwards: str) -> None:
    """Makes the change and goes to the page `afterwards`; if it is refused, the form says why."""
    try:
        await change
    except (GatewayRefused, GatewayUnreachable) as error:
        marked.say(refusal(view, error), error)
        return
    ui.navigate.to(afterwards)


def way_on(view: View, error: Exception) -> str:
    """A link to the sign-in if the session is valid but its key was revoked, replaced or has expired; else empty."""
    if not isinstance(error, GatewayRefused) or error.status != 401:
        return ""
    wanted = f"{view.request.url.path}?{view.request.url.query}".removesuffix("?")
    address = escape(sign_in_address(wanted, path=below_ui("/sign-in")))
    return f'<p class="be-note"><a href="{address}">Sign in with another key</a></p>'


def _load_once_back(view: View, *, is_away: bool) -> None:
    """Reload the page once a gateway that was away answers again. Not after a mere timeout: the same request would
    probably take too long again."""

    async def look() -> None:
        nonlocal is_away
        try:
            await view.gateway.get("/healthz")
        except (GatewayRefused, GatewayUnreachable):
            is_away = True
        else:
            timer.deactivate()
            if is_away:
                ui.navigate.reload()

    timer = ui.timer(AWAY_SECONDS, look)


def no_requests(view: View, books_begin: str | None) -> str:
    """The message for a period without requests: when the books begin or, if they are empty, how to send a request."""
    if books_begin is not None:
        began = display.group_time("hour", books_begin)
        said = f"The books begin on {began} UTC: choose another time above."
        return markup.message("No requests in this time", said)
    return markup.message(
        "No requests yet",
        "Point an OpenAI client at the gateway and its cost appears here within seconds. `breakeven demo --month` "
        "fills a separate database with an example month.",
    ) + first_request(view)


def first_request(view: View) -> str:
    """A command to paste, and where to get its key; links to the page Keys only for roles that may create one."""
    source = 'made on the page <a href="keys">Keys</a>' if view.session.may("keys.write") else "made by an owner"
    return (
        '<section class="be-panel"><h2>A first request</h2><p class="be-note">Replace <code>$KEY</code> with the app '
        f"key that was printed at the first start, or with one {source}. The address is how this web UI reaches the "
        "gateway. With <code>auto</code> Breakeven chooses the model; the page "
        '<a href="try">Try it</a> shows its choice without calling one.</p>'
        f'<pre class="be-secret">{escape(FIRST_REQUEST.format(gateway=view.gateway.url))}</pre></section>'
    )


def html(text: str) -> ui.html:
    """Our own markup, whose values are escaped already; the browser sanitizes it once more."""
    return ui.html(text, sanitize=True)


class Chart:
    """A chart with a label for screen readers. `numbers` builds a table of the drawn values, for pages that have none;
    it is called when somebody opens the table."""

    def __init__(
        self, options: Options, label: str, *, size: Size = "", numbers: Callable[[], str] | None = None
    ) -> None:
        self._drawn = ui.echart(options).classes(f"be-chart {size}")
        self._drawn.props(f'role="img" aria-label="{escape(label, quote=True)}"')
        self._numbers = numbers
        if numbers is None:
            return
        with ui.element("details").classes("be-numbers") as opened:
            with ui.element("summary"):
                ui.label("Numbers of this chart")
            self._table = html("")
        opened.on("toggle", self._fill, [])

    def show(self, options: Options, numbers: Callable[[], str]) -> None:
        """Draw other values in the same place: a chart that is taken away before it was drawn fails in the browser, and
        an opened table would close."""
        self._drawn.props["options"] = options
        self._drawn.update()
        self._numbers = numbers
        if self._table.content:
            self._fill()

    def _fill(self) -> None:
        assert self._numbers is not None
        self._table.set_content(self._numbers())


def panel(title: str, note: str = "") -> ui.element:
    """A titled box to build into."""
    box = ui.element("section").classes("be-panel")
    with box:
        html(f"<h2>{escape(title)}</h2>" + (f'<p class="be-note">{escape(note)}</p>' if note else ""))
    return box


def grid(kind: str) -> ui.element:
    return ui.element("div").classes(kind)


def confirm(question: str, label: str, then: Callable[[], Awaitable[None]]) -> None:
    """Ask before an action that cannot easily be undone: `then` runs when the button labelled `label` is pressed."""
    with ui.dialog().props("role=alertdialog") as dialog, ui.card():
        dialog.props["aria-label"] = question
        html(f"<p>{escape(question)}</p>")

        async def pressed() -> None:
            dialog.close()
            await then()

        with grid("be-actions"):
            ui.button("Keep it", on_click=dialog.close).props("no-caps outline")
            ui.button(label, on_click=pressed).props("no-caps unelevated color=negative")
    dialog.open()


def _button(label: str, js: str, kind: str) -> ui.element:
    """A plain button handled in the browser, without the server."""
    button = ui.element("button").classes(kind).props('type="button"')
    button.on("click", js_handler=js)
    with button:
        ui.label(label)
    return button


def _navigation(spec: PageSpec, specs: Sequence[PageSpec], view: View) -> str:
    parts: list[str] = []
    group = ""
    for one in specs:
        if not one.group or not view.session.may(*one.permissions):
            continue
        if one.group != group:
            group = one.group
            parts.append(f'<div class="be-group">{escape(group)}</div>')
        current = ' aria-current="page"' if one.path == spec.path else ""
        href = view.link(one.path) if one.has_period else below_ui(one.path)
        parts.append(f'<a class="be-nav" href="{escape(href)}"{current}>{escape(one.title)}</a>')
    return "".join(parts)


def _who(session: Session) -> str:
    return (
        f"<div>{escape(session.name)} · {escape(session.role)}</div>"
        f'<form method="post" action="sign-out"><input type="hidden" name="csrf" value="{escape(session.csrf)}">'
        '<button class="be-link" type="submit">Sign out</button></form>'
    )


def _head(spec: PageSpec, view: View) -> str:
    if not spec.has_period:
        return f'<div class="be-head"><h1>{escape(spec.title)}</h1></div>'
    kept = {n: v for n, v in view.request.query_params.items() if n not in OF_ONE_PERIOD}
    now = datetime.now(UTC)
    choices = ""
    for name, label in PRESETS.items():
        current = ' aria-current="true"' if view.period.name == name else ""
        href = link(spec.path, preset(name, now), **kept)
        choices += f'<a href="{escape(href)}"{current}>{escape(label)}</a>'
    choices += _own_range(spec.path, view.period, kept)
    period = f"{view.period.since:%-d %b %Y %H:%M} – {view.period.until:%-d %b %Y %H:%M} UTC"
    period += "" if view.period.reached is None else ", not over yet"
    return (
        f'<div class="be-head"><div><h1>{escape(spec.title)}</h1><div class="be-sub">{escape(period)}</div></div>'
        f'<div class="be-periods" role="group" aria-label="Time range">{choices}</div></div>'
    )


def _own_range(path: str, period: Period, kept: dict[str, str]) -> str:
    """A form for a range of dates, both included."""
    hidden = "".join(f'<input type="hidden" name="{escape(n)}" value="{escape(v)}">' for n, v in kept.items())
    last, current = period.last_moment, "" if period.name else ' aria-current="true"'
    return (
        f'<details class="be-range"><summary{current}>Other dates</summary>'
        f'<form method="get" action="{below_ui(path)}" autocomplete="off">{hidden}'
        f'<label class="be-field">From<input type="date" name="since" required value="{period.since:%Y-%m-%d}"></label>'
        f'<label class="be-field">to, included<input type="date" name="last" required value="{last:%Y-%m-%d}"></label>'
        '<button class="be-button" type="submit">Show</button></form></details>'
    )
