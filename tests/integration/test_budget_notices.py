"""A gateway notifies its webhook of a budget in the background, and never reveals the webhook's address."""

import logging
from pathlib import Path

import pytest
from prometheus_client import generate_latest

from gateway.clock import now_us
from gateway.composition.deployment import load_deployment
from gateway.composition.running import Gateway
from gateway.composition.wiring import open_gateway
from gateway.config.home import Home
from gateway.ledger.batch import Batch
from gateway.ledger.entry import Cost
from gateway.limits.values import window_id
from gateway.stores import Budget
from tests.homes import new_home
from tests.unit.gateway.ledger.builders import make_entry, make_intent
from tests.waiting import until
from tests.webhook_receiver import webhook_receiver

pytestmark = pytest.mark.integration

USD = 10**12


@pytest.fixture
def home(tmp_path: Path) -> Home:
    return new_home(tmp_path)


async def spend_85_of_100(gateway: Gateway) -> None:
    await gateway.stores.budgets.set(Budget("team", "search", 100 * USD, "ada", now_us()))
    intent = make_intent(1, accepted_at_us=now_us())
    await gateway.sink.insert(Batch.of([make_entry(1, intent=intent, cost=Cost(input_pico_usd=85 * USD))]))


async def test_it_is_told_in_the_background_and_not_again_after_a_restart(
    home: Home, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr("gateway.composition.running.NOTICES_SECONDS", 0.05)
    monkeypatch.setattr("gateway.notices.watch.LOOK_US", 0)
    monkeypatch.setattr("gateway.notices.webhook.WAITS_SECONDS", (0.0, 0.0))
    caplog.set_level(logging.WARNING)
    with webhook_receiver([500] * 3) as receiver:
        deployment = load_deployment(home, environ={"BREAKEVEN_NOTICES_WEBHOOK": receiver.url})
        gateway = await open_gateway(deployment)
        await gateway.start()
        await spend_85_of_100(gateway)
        await until(lambda: gateway.stores.notices.told([window_id("month", now_us())]))
        shown = generate_latest(gateway.exposition).decode()
        await gateway.stop()
        again = await open_gateway(deployment)
        await again.start()
        assert again.notices is not None
        await again.notices.look()
        await again.stop()
    assert [one["spent_usd"] for one in receiver.documents] == ["85.000000000000"] * 4, "three were refused"
    assert 'breakeven_budget_notices_total{outcome="failed"} 1.0' in shown
    assert "telling of budgets failed (the webhook of `notices` took nothing: it answered 500" in caplog.text
    assert "T0SECRET" not in caplog.text + shown


async def test_without_a_webhook_there_is_no_such_chore(home: Home) -> None:
    gateway = await open_gateway(load_deployment(home, environ={}))
    await gateway.start()
    names = {task.get_name() for task in gateway.tasks}
    await gateway.stop()
    assert gateway.notices is None
    assert "notices" not in names
