"""What the environment adds to the files, and which deployments are refused."""

from dataclasses import replace
from datetime import date
from pathlib import Path

import pytest

from gateway.composition.deployment import load_deployment, load_environment_settings, require_clients
from gateway.config.engine_curve import CurveFile, save_engine_curve
from gateway.config.home import Home
from gateway.config.price_files import load_prices, own_prices, write_prices
from gateway.errors import ConfigurationError, StateError
from gateway.instants import start_of_day_us
from gateway.limits.values import Rates as LimitRates
from gateway.pricing.catalogue import FOR_EVER_US, Ladder, Rates
from gateway.routing.snapshot import Snapshot
from tests.homes import new_home


@pytest.fixture
def home(tmp_path: Path) -> Home:
    return new_home(tmp_path / "state")


def add(home: Home, text: str) -> None:
    old = home.config_file.read_text("utf-8")
    home.config_file.write_text(old + text, "utf-8")


def test_addresses_with_passwords_may_come_from_the_environment(home: Home) -> None:
    add(home, "\ndatabase: postgresql+asyncpg://file/x\n")
    environ = {
        "BREAKEVEN_DATABASE_URL": "postgresql+asyncpg://user:secret@host/x",
        "BREAKEVEN_REDIS_URL": "redis://:secret@host:6379/0",
    }
    deployment = load_deployment(home, environ=environ)
    assert deployment.database_url == environ["BREAKEVEN_DATABASE_URL"]
    assert deployment.settings.redis == environ["BREAKEVEN_REDIS_URL"]
    assert load_deployment(home, environ={}).database_url == "postgresql+asyncpg://file/x"


@pytest.mark.parametrize(
    "text",
    [
        "{",
        '{"model": "m", "prefill_tokens_per_second": 0, "points": [[1, 20.0], [2, 30.0], [4, 45.0]]}',
        '{"model": "m", "prefill_tokens_per_second": 9, "points": [[1, 1e-320], [2, 30.0], [4, 45.0]]}',
        '{"model": "m", "prefill_tokens_per_second": 9, "points": [[1, 20.0], [2, 30.0], [4000000000, 45.0]]}',
    ],
)
def test_a_damaged_throughput_curve_stops_nothing_and_is_told(
    home: Home, caplog: pytest.LogCaptureFixture, text: str
) -> None:
    home.curve_file.write_text(text, "utf-8")
    assert load_deployment(home, environ={}).curve.is_assumed
    assert "throughput-curve.json: is not a throughput curve" in caplog.text
    assert "`breakeven bench engine`" in caplog.text


def test_a_throughput_curve_that_is_measured_while_a_worker_starts_is_noticed(home: Home) -> None:
    deployment = load_deployment(home)
    assert not deployment.curve_watch.has_changed()
    save_engine_curve(home.curve_file, CurveFile("tiny", 300.0, [(1, 20.0), (2, 30.0), (4, 40.0)]))
    assert deployment.curve_watch.has_changed()


def test_the_webhook_of_notices_may_come_from_the_environment(home: Home) -> None:
    assert load_deployment(home, environ={}).settings.notices.webhook is None
    add(home, "\nnotices: {webhook: 'https://file.example/x', at: [0.5, 1]}\n")
    environ = {"BREAKEVEN_NOTICES_WEBHOOK": "https://chat.example/hooks/T0SECRET"}
    notices = load_deployment(home, environ=environ).settings.notices
    assert notices.webhook == environ["BREAKEVEN_NOTICES_WEBHOOK"]
    assert notices.shares_per_mille == (500, 1000)
    assert "T0SECRET" not in repr(notices)
    assert load_deployment(home, environ={}).settings.notices.webhook == "https://file.example/x"


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("webhook: chat.example/T0SECRET", "notices.webhook: must begin with http"),
        ("webhook: 'https://chat.example:99999/T0SECRET'", "notices.webhook: names no host"),
        ("at: [80]", "notices.at.0: must be below 10"),
        ("at: [0]", "notices.at.0: must be above 0"),
        ("at: []", "notices.at: has too few items"),
    ],
)
def test_notices_that_could_never_be_sent_are_refused_without_the_secret(home: Home, text: str, says: str) -> None:
    add(home, f"\nnotices: {{{text}}}\n")
    with pytest.raises(ConfigurationError, match=says) as told:
        load_deployment(home, environ={})
    assert "T0SECRET" not in str(told.value)


@pytest.mark.parametrize(
    ("variable", "value", "says"),
    [
        ("BREAKEVEN_NOTICES_WEBHOOK", "chat.example/x", "BREAKEVEN_NOTICES_WEBHOOK: must begin with http"),
        ("BREAKEVEN_DATABASE_URL", "mysql://h/db", "BREAKEVEN_DATABASE_URL: must be postgresql://"),
        ("BREAKEVEN_REDIS_URL", "h:6379", "BREAKEVEN_REDIS_URL: must begin with redis://"),
    ],
)
def test_an_address_of_the_environment_that_is_none_is_named(home: Home, variable: str, value: str, says: str) -> None:
    with pytest.raises(ConfigurationError, match=says):
        load_deployment(home, environ={variable: value})


def test_imported_prices_stand_in_for_the_shipped_ones(home: Home) -> None:
    (shipped,) = load_prices(providers=["openai"])
    (model,) = [one for one in shipped.models if one.model == "gpt-4o-mini"]
    dearer = replace(model.history[-1], ladder=Ladder(Rates(input=7, output=8)))
    write_prices(own_prices(home), replace(shipped, models=(replace(model, history=(dearer,)),)))
    prices = load_deployment(home, environ={}).prices
    assert [one.rates for one in prices.history("openai", "gpt-4o-mini")] == [Rates(input=7, output=8)]
    assert prices.models("anthropic")


@pytest.mark.parametrize(
    ("terms", "says"),
    [
        (None, "terms.yaml: does not exist"),
        (
            "{provider: opnai, discount: 0.1}",
            r"overrides.0: no price of the provider 'opnai' is known; known: .*openai",
        ),
        ("{provider: openai, model: gpt-nope, discount: 0.1}", "no price of openai's 'gpt-nope' is known"),
    ],
)
def test_terms_that_could_never_count_are_refused(home: Home, terms: str | None, says: str) -> None:
    add(home, "\nprice_overrides: [terms.yaml]\n")
    if terms is not None:
        (home.root / "terms.yaml").write_text(f"overrides: [{terms}]\n", "utf-8")
    with pytest.raises(ConfigurationError, match=says):
        load_deployment(home, environ={})


def test_more_than_one_worker_without_redis_is_refused_with_the_reason(home: Home) -> None:
    text = home.config_file.read_text("utf-8").replace("server:\n", "server:\n  workers: 3\n")
    home.config_file.write_text(text, "utf-8")
    with pytest.raises(ConfigurationError, match=r"server\.workers: 3 workers need Redis: .* 3 times what is allowed"):
        load_deployment(home, environ={})
    assert load_deployment(home, environ={"BREAKEVEN_REDIS_URL": "redis://h/0"}).settings.server.workers == 3


@pytest.mark.parametrize(
    ("addresses", "missing"),
    [
        ({"BREAKEVEN_REDIS_URL": "redis://h/0"}, "Redis is configured and redis is missing: .*redis"),
        ({}, r"telemetry is configured and opentelemetry\.exporter\..* is missing: .*otel"),
    ],
)
def test_what_each_worker_would_miss_stops_the_start(home: Home, addresses: dict[str, str], missing: str) -> None:
    """With several workers it started, and so did they, again and again."""
    add(home, "\ntelemetry: {otlp_endpoint: 'http://h:4318'}\n")
    settings = load_environment_settings(home, addresses)
    require_clients(settings, lambda _: True)
    with pytest.raises(StateError, match=missing):
        require_clients(settings, lambda _: False)


def test_limits_of_teams_and_models_and_tiers(home: Home) -> None:
    add(
        home,
        "\nlimits: {teams: {red: {requests_per_minute: 6, max_parallel_requests: 3}},"
        " models: {m: {tokens_per_minute: 7}, n: {max_parallel_requests: 2}}}\ntiers: {t: [m]}\n",
    )
    shared = load_deployment(home, environ={}).shared_limits
    assert shared.teams == {"red": LimitRates(requests_per_minute=6, max_parallel_requests=3)}
    assert shared.models == {"m": LimitRates(tokens_per_minute=7), "n": LimitRates(max_parallel_requests=2)}
    assert shared.tiers == {"t": frozenset({"m"})}


def test_replicas_share_one_pepper(home: Home, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    own = home.pepper()
    assert own == home.pepper() != Home(tmp_path).pepper()
    monkeypatch.setenv("BREAKEVEN_PEPPER", "ab" * 32)
    assert home.pepper() == Home(tmp_path).pepper() == bytes.fromhex("ab" * 32)


@pytest.mark.parametrize("given", ["ab", "xy" * 32])
def test_a_pepper_that_is_none_is_refused(home: Home, given: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("BREAKEVEN_PEPPER", given)
    with pytest.raises(StateError, match="64 hexadecimal digits"):
        home.pepper()


def test_a_snapshot_knows_when_its_prices_hold(home: Home) -> None:
    """A discount begins on 1 February 2030; one of a provider without a key here does not count."""
    (home.root / "terms.yaml").write_text(
        "overrides:\n"
        "- {provider: openai, discount: 0.1, from: 2030-02-01}\n"
        "- {provider: anthropic, discount: 0.1, from: 2030-01-20}\n",
        "utf-8",
    )
    add(home, "\nprice_overrides: [terms.yaml]\n")
    deployment = load_deployment(home, environ={"OPENAI_API_KEY": "x"})
    january, february = start_of_day_us(date(2030, 1, 2)), start_of_day_us(date(2030, 2, 1))

    def snapshot(at_us: int) -> Snapshot:
        return deployment.catalogue.snapshot(
            deployment.rules, deployment.prices, classifier_version="test", at_us=at_us
        )

    assert snapshot(january).prices_until_us == february
    assert snapshot(february).prices_until_us == FOR_EVER_US
    assert snapshot(february).prices_at_us == february
