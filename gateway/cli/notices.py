"""`breakeven notices`: tests the webhook for budget notices."""

import asyncio

import typer

from gateway.clock import now_us
from gateway.composition.deployment import WEBHOOK_VARIABLE, load_environment_settings
from gateway.composition.notices import budgets_page
from gateway.config.home import find_home
from gateway.errors import ConfigurationError
from gateway.limits.values import window_id
from gateway.money import PICO_PER_USD
from gateway.notices.notice import BudgetSpent, document
from gateway.notices.webhook import Webhook

app = typer.Typer(help="Notices about budgets that are nearly or fully spent.", no_args_is_help=True)


@app.callback()
def group() -> None:
    """Notices about budgets that are nearly or fully spent."""


@app.command("test")
def send_test() -> None:
    """Send one notice, marked as a test, to the webhook."""
    home = find_home()
    settings = load_environment_settings(home)
    if not settings.notices.webhook:
        raise ConfigurationError(
            f"names no webhook: write one there or set {WEBHOOK_VARIABLE}",
            file=str(home.config_file),
            field="notices",
        )
    share = settings.notices.shares_per_mille[0]
    example = BudgetSpent(
        scope="team",
        name="example",
        shown="example",
        window_id=window_id("month", now_us()),
        amount_pico_usd=1000 * PICO_PER_USD,
        spent_pico_usd=share * PICO_PER_USD,
        stops=False,
    )
    notice = document(example, example.mark(share), page=budgets_page(settings), is_test=True)
    asyncio.run(Webhook(settings.notices.webhook).post(notice))
    print("The webhook accepted the test notice.")
