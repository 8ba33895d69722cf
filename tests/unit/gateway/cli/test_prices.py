"""`breakeven prices` over the shipped catalogue and a directory of its own."""

import asyncio
import json
from datetime import UTC, datetime
from functools import partial
from importlib.util import find_spec
from pathlib import Path

import msgspec
import pytest
from typer.testing import CliRunner

from gateway.cli import build
from gateway.cli.demo.month import write_demo_month
from gateway.cli.state import open_state
from gateway.config.home import Home
from gateway.config.settings import load_settings
from gateway.errors import ConfigurationError, StateError
from gateway.storage.database import writing
from gateway.storage.retention import apply_retention
from gateway.storage.tables.books import adjustments
from gateway.sums import SumsQuery
from tests.unit.gateway.cli.commands import run_cli
from tests.unit.gateway.ledger.builders import make_entry

needs_litellm = pytest.mark.skipif(
    find_spec("litellm") is None, reason="litellm's price map is missing: pip install 'breakeven[litellm]'"
)
STALE = """\
provider: openai
models:
  gpt-4o-mini:
    prices:
    - from: 2024-07-18
      source: a test
      input: 0.15
      output: 0.7
"""


@pytest.fixture(autouse=True)
def _home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("BREAKEVEN_HOME", str(tmp_path / "home"))


run = partial(run_cli, "prices")


def test_list_and_show() -> None:
    listed = json.loads(run("list", "--provider", "openai", "--json"))
    row = next(row for row in listed["models"] if row["model"] == "gpt-4o-mini")
    assert row["usd_per_mtok"]["input"] == "0.15"
    assert row in json.loads(run("show", "openai/gpt-4o-mini", "--json"))
    assert "gpt-4o-mini" in run("show", "gpt-4o-mini")
    with pytest.raises(ConfigurationError, match="no price is known for 'nobody'"):
        run("show", "nobody")


def test_what_a_provider_charges_by_the_call_and_what_is_taken_off_is_shown(tmp_path: Path) -> None:
    home = tmp_path / "home"
    home.mkdir()
    (home / "breakeven.yaml").write_text("price_overrides: [terms.yaml]\n")
    (home / "terms.yaml").write_text("overrides: [{provider: openai, discount: 0.125}]\n")
    assert "per web search" in run("show", "openai/gpt-4o-mini")
    listed = json.loads(run("list", "--provider", "openai", "--json"))["models"]
    row = next(row for row in listed if row["model"] == "gpt-4o-mini")
    assert (row["discount"], row["usd_per_mtok"]["input"]) == ("0.125", "0.15")
    assert row["usd_each"] == {"per web search": "0.01", "per file search": "0.0025"}
    assert "12.5%" in run("list", "--provider", "openai")
    assert row in json.loads(run("show", "openai/gpt-4o-mini", "--json"))
    assert "12.5% less" in run("show", "openai/gpt-4o-mini")


@needs_litellm
def test_an_import_appends_what_differs_and_then_nothing(tmp_path: Path) -> None:
    directory = tmp_path / "prices"
    directory.mkdir()
    file = directory / "openai.yaml"
    file.write_text(STALE)
    words = ("--from", "litellm", "--provider", "openai", "--directory", str(directory), "--json")
    changes = json.loads(run("diff", *words))
    (changed,) = [change for change in changes if change["kind"] == "changed"]
    assert "output 0.7 -> 0.6" in changed["differences"]
    assert file.read_text() == STALE
    run("import", *words, "--yes")
    assert "output: 0.7" in file.read_text()
    assert json.loads(run("diff", *words)) == []


@needs_litellm
def test_an_import_that_is_not_approved_writes_nothing(tmp_path: Path) -> None:
    words = ["prices", "import", "--from", "litellm", "--provider", "groq", "--directory", str(tmp_path)]
    result = CliRunner().invoke(build("prices"), words, input="n\n")
    assert result.exit_code == 1
    assert list(tmp_path.glob("*.yaml")) == []


def test_an_unknown_source_is_named() -> None:
    with pytest.raises(ConfigurationError, match="not from 'elsewhere'"):
        run("diff", "--from", "elsewhere")


def test_reprice_books_an_unpriced_request_once(tmp_path: Path) -> None:
    home = Home(tmp_path / "home")
    month = asyncio.run(write_demo_month(home, now=datetime(2026, 11, 20, 12, tzinfo=UTC), requests=5))
    assert month is not None
    root = month.home.root
    words = ("reprice", "--since", "2026-11-01", "--until", "2026-11-30", "--json")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("BREAKEVEN_HOME", str(root))
        asyncio.run(add_unpriced())
        dry = json.loads(run(*words))
        assert (dry["requests"], dry["difference_usd"], dry["booked"]) == (1, "0.000000637500", 0)
        assert dry["models"][0]["model"] == "gpt-4o-mini"
        assert json.loads(run(*words, "--yes"))["booked"] == 1
        nothing = {"requests": 0, "difference_usd": "0.000000000000", "booked": 0, "deleted_requests": 0, "models": []}
        assert json.loads(run(*words, "--yes")) == nothing
        assert "0 requests" in run(*words[:-1])
        asyncio.run(forget())
        assert "requests of this time cannot be priced again: retention" in run(*words[:-1])


def test_a_discount_agreed_late_is_booked_as_corrections_and_taken_back_as_corrections(tmp_path: Path) -> None:
    """The demonstration's terms change twice in retrospect; corrections follow each time, entries never change."""
    home = Home(tmp_path / "home")
    month = asyncio.run(write_demo_month(home, now=datetime(2026, 11, 20, 12, tzinfo=UTC), requests=5))
    assert month is not None
    [name] = load_settings(month.home).price_overrides
    terms = month.home.root / name
    agreed = terms.read_text()
    words = ("reprice", "--since", "2026-11-18", "--model", "gpt-4o-mini", "--json", "--yes")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("BREAKEVEN_HOME", str(month.home.root))
        asyncio.run(add_unpriced())
        assert json.loads(run(*words))["difference_usd"] == "0.000000637500"
        for text, difference in ((agreed.replace("0.15", "0.5"), "-0.000000262500"), (agreed, "0.000000262500")) * 2:
            terms.write_text(text)
            found = json.loads(run(*words))
            assert (found["difference_usd"], found["booked"]) == (difference, 1)
            assert json.loads(run(*words))["booked"] == 0
        assert asyncio.run(corrected_pico_usd()) == 637_500
        asyncio.run(date_corrections_ahead())
        terms.write_text(agreed.replace("0.15", "0.5"))
        with pytest.raises(StateError, match="add --clock-is-right"):
            run(*words)
        assert json.loads(run(*words, "--clock-is-right"))["booked"] == 1
        with pytest.raises(ConfigurationError, match="--since must be before --until"):
            run(*words, "--until", "2026-11-18")


async def date_corrections_ahead() -> None:
    async with open_state() as state, writing(state.database) as connection:
        await connection.execute(adjustments.update().values(at_us=1 << 53))


async def corrected_pico_usd() -> int:
    async with open_state() as state:
        [sums] = await state.reports.sums(SumsQuery(0, 1 << 60, (), {"upstream_model": "gpt-4o-mini"}))
        assert sums.cost_pico_usd == 0, "the entry itself stays unpriced"
        return sums.corrected_cost_pico_usd


async def forget() -> None:
    async with open_state() as state:
        now = int(datetime(2027, 1, 1, tzinfo=UTC).timestamp() * 1_000_000)
        await apply_retention(state.database, requests_days=1, bodies_days=1, now_us=now)


async def add_unpriced() -> None:
    """One token in and one out of gpt-4o-mini: $0.15 and $0.60 a million, less the demonstration's 15 % discount."""
    plain = make_entry()
    at_us = int(datetime(2026, 11, 19, tzinfo=UTC).timestamp() * 1_000_000)
    counts = {"input_tokens": 1, "output_tokens": 1, "cached_input_tokens": 0, "cache_write_5m_tokens": 0}
    entry = msgspec.structs.replace(
        plain,
        intent=msgspec.structs.replace(plain.intent, request_id="f" * 32, accepted_at_us=at_us),
        provider="openai",
        upstream_model="gpt-4o-mini",
        cost=None,
        service_tier=None,
        cache_write_1h_tokens=0,
        reasoning_tokens=0,
        **counts,
    )
    async with open_state() as state:
        await state.ledger.insert([entry])
