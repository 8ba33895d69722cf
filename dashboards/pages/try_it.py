"""Where would this prompt go, and why: the data path's own decision, without calling any model."""

from html import escape
from typing import Any

from nicegui import ui

from dashboards import display, markup
from dashboards.forms.kept import KeptForm
from dashboards.forms.marked_fields import MarkedFields
from dashboards.forms.one_press import on_press
from dashboards.forms.problem import WrongField, form_problem, form_word
from dashboards.frame import View, grid, html, panel
from dashboards.gateway_client import GatewayRefused, GatewayUnreachable
from dashboards.markup import Cell, Column

LONGEST_PROMPT = 100_000
CUT = f"The page takes no more than {LONGEST_PROMPT:,} characters: the decision is for those."


async def build(view: View) -> None:
    """A form for a prompt, and the explained decision."""
    note = "It is classified and decided as a real request would be. Nothing is sent to a model or stored."
    with panel("A prompt", note):
        prompt = ui.textarea(placeholder="Write a prompt…").props(
            f"outlined autogrow aria-label=Prompt maxlength={LONGEST_PROMPT}"
        )
        prompt.style("width: 100%")
        with grid("be-actions"):
            tags = ui.input("Tags, comma-separated").props("dense outlined maxlength=200").style("min-width: 16rem")
            button = ui.button("Explain the decision").props("no-caps unelevated")
        said = html("")
    fields = {"prompt": prompt, "tags": tags}
    KeptForm("try", fields, lambda text: said.set_content(form_word(text)), outlives_leaving=True)
    marked = MarkedFields(fields, said)
    result = ui.element("div")

    async def explain() -> None:
        text = prompt.value or ""
        if not text.strip():
            wrong = WrongField("prompt", "Write a prompt first.")
            marked.say(form_problem(wrong), wrong)
            return
        marked.say("")
        body = {"model": "auto", "messages": [{"role": "user", "content": text}]}
        result.clear()
        with result:
            with panel("The prompt", CUT if len(text) >= LONGEST_PROMPT else ""):
                html(f'<div class="be-code" style="white-space: pre-wrap">{escape(text)}</div>')
            try:
                found = await view.gateway.explain(body, tags=header_of(tags.value or ""))
            except (GatewayRefused, GatewayUnreachable) as error:
                html(markup.message("No decision", str(error), tone="warn"))
                return
            with panel("The decision"):
                html(_decision(found))

    on_press(button, explain)


def header_of(tags: str) -> str:
    """What a header can carry: printable ASCII without blanks at the ends."""
    return "".join(sign for sign in tags if " " <= sign <= "~").strip()


def _decision(found: dict[str, Any]) -> str:
    difficulty = "unknown" if found["difficulty"] is None else f"{found['difficulty']:.3f}"
    tiles = [
        markup.tile("Answered by", found["model"], f"backend {found['backend']}"),
        markup.tile("Rule", found["rule"], f"rules version {found['rules_version']}"),
        markup.tile("Difficulty", difficulty, f"0 easy, 1 hard; ± {found['uncertainty'] or 0:.3f}"),
        markup.tile("Input", display.count(found["input_tokens"]), "tokens, estimated by length"),
    ]
    rows = [
        [
            Cell(one["model"], tone="" if one["rejected"] is None else "muted"),
            one["backend"],
            display.dollars(one["expected_cost_usd"]),
            display.UNKNOWN if one["predicted_quality"] is None else f"{one['predicted_quality']:.3f}",
            display.seconds(one["expected_time_to_first_token_seconds"]),
            Cell(_verdict(one, found), tone="good" if one["model"] == found["model"] else "muted"),
        ]
        for one in found["candidates"]
    ]
    columns = [
        Column("Model"),
        Column("Backend"),
        Column("Expected cost", is_number=True),
        Column("Predicted quality", is_number=True),
        Column("First token, expected", is_number=True),
        Column("Verdict"),
    ]
    fallbacks = ", then ".join(found["fallbacks"]) or "none"
    return (
        markup.tiles(tiles)
        + markup.table(columns, rows, caption="Candidates weighed")
        + f'<p class="muted">If it fails before its first token: {escape(fallbacks)}.</p>'
    )


def _verdict(one: dict[str, Any], found: dict[str, Any]) -> str:
    if one["model"] == found["model"]:
        return "chosen"
    return str(one["rejected"] or "possible")
