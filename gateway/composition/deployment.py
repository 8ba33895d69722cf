"""Everything in a deployment's files and environment, read and validated together; nothing is started."""

import logging
import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from gateway.composition.backend_table import BackendTable, build_backend_table
from gateway.config.addresses import parse_database_url, parse_http_url
from gateway.config.engine_curve import ASSUMED, MeasuredEngine, fit_engine, load_engine_curve
from gateway.config.home import Home
from gateway.config.limit_settings import shared_limits
from gateway.config.price_files import load_deployment_prices
from gateway.config.redis_addresses import parse_redis_url
from gateway.config.settings import Settings, load_settings, read_own_text
from gateway.errors import ConfigurationError, StateError
from gateway.extras import install_command, is_installed
from gateway.limits.values import SharedLimits
from gateway.pricing.catalogue import PriceBook
from gateway.process.file_watch import FileWatch
from gateway.routing.rules import RulesDocument
from gateway.rulebook.catalogue import Catalogue

log = logging.getLogger(__name__)
ENVIRONMENT_ADDRESSES = (
    ("database", "BREAKEVEN_DATABASE_URL", parse_database_url),
    ("redis", "BREAKEVEN_REDIS_URL", parse_redis_url),
)
WEBHOOK_VARIABLE = "BREAKEVEN_NOTICES_WEBHOOK"
ADDRESS_VARIABLES = (*(variable for _, variable, _ in ENVIRONMENT_ADDRESSES), WEBHOOK_VARIABLE)
OTLP_PACKAGE = "opentelemetry.exporter.otlp.proto.http"
"""What sends telemetry; other packages bring the rest of `opentelemetry`."""
OFFLINE_ENGINE_URL = "http://127.0.0.1:1/v1"
"""Placeholder for the engine's address when nothing will be sent there."""


@dataclass(frozen=True, slots=True)
class Deployment:
    """One consistent reading of the files."""

    home: Home
    settings: Settings
    curve: MeasuredEngine
    curve_watch: FileWatch
    table: BackendTable
    catalogue: Catalogue
    prices: PriceBook
    rules_text: str
    rules: RulesDocument

    @property
    def database_url(self) -> str:
        return self.settings.database or self.home.database_url

    @property
    def shared_limits(self) -> SharedLimits:
        return shared_limits(self.settings.limits, self.settings.tiers)


def load_deployment(
    home: Home, *, engine_url: str | None = None, environ: Mapping[str, str] = os.environ
) -> Deployment:
    """Reads everything. Raises ConfigurationError for the first problem.

    `engine_url` is where the bundled engine listens; without it the engine is known but unreachable.
    """
    settings = load_environment_settings(home, environ)
    require_redis(settings, settings.server.workers, home)
    # In this order: a curve that is measured in between is noticed.
    curve_watch, curve = FileWatch(home.curve_file), _curve_or_assumed(home)
    url = (engine_url or OFFLINE_ENGINE_URL) if settings.engine.is_enabled else None
    table = build_backend_table(settings, environ, url, curve)
    catalogue = table.catalogue()
    text = read_own_text(home.rules_file)
    rules = catalogue.parse(text, file=str(home.rules_file))
    prices = load_deployment_prices(home, settings)
    return Deployment(home, settings, curve, curve_watch, table, catalogue, prices, text, rules)


def _curve_or_assumed(home: Home) -> MeasuredEngine:
    """Few commands need the curve, so a damaged one stops none."""
    try:
        return load_engine_curve(home.curve_file)
    except ConfigurationError as error:
        log.warning("%s. Until then the engine's figures are assumed", error)
        return fit_engine(ASSUMED)


def load_environment_settings(home: Home, environ: Mapping[str, str] = os.environ) -> Settings:
    """The configuration file; addresses that contain secrets may be set in the environment, which takes precedence."""
    return with_environment(load_settings(home), environ)


def with_environment(settings: Settings, environ: Mapping[str, str] = os.environ) -> Settings:
    """The settings with the addresses in the environment. Raises ConfigurationError."""
    given: dict[str, object] = {
        name: _address(check, variable, environ[variable])
        for name, variable, check in ENVIRONMENT_ADDRESSES
        if environ.get(variable)
    }
    if environ.get(WEBHOOK_VARIABLE):
        webhook = _address(parse_http_url, WEBHOOK_VARIABLE, environ[WEBHOOK_VARIABLE])
        given["notices"] = settings.notices.model_copy(update={"webhook": webhook})
    return settings.model_copy(update=given)


def _address(check: Callable[[str], str], variable: str, value: str) -> str:
    try:
        return check(value)
    except ValueError as error:
        raise ConfigurationError(str(error), field=variable) from error


def require_redis(settings: Settings, workers: int, home: Home) -> None:
    """Raises ConfigurationError if several workers would have no shared place to count in."""
    if workers > 1 and settings.redis is None:
        raise ConfigurationError(
            f"{workers} workers need Redis: each would count budgets and rates by itself, and together they would let "
            f"through {workers} times what is allowed. Set `redis:` or BREAKEVEN_REDIS_URL, or run one worker",
            file=str(home.config_file),
            field="server.workers",
        )


def require_clients(settings: Settings, is_installed: Callable[[str], bool] = is_installed) -> None:
    """Raises StateError if a configured service has no client here. Workers would find that out one by one, and be
    started again for ever."""
    for service, package, extra, address in (
        ("Redis", "redis", "redis", settings.redis),
        ("telemetry", OTLP_PACKAGE, "otel", settings.telemetry.otlp_endpoint),
    ):
        if address is not None and not is_installed(package):
            raise StateError(f"{service} is configured and {package} is missing: {install_command(extra)}")
