"""`breakeven doctor`: what works on this machine, what does not, and the fix."""

import json
import os
import sys
import sysconfig
from collections.abc import Iterator
from dataclasses import asdict

import httpx
import msgspec
import typer
from rich.console import Console
from rich.markup import escape

from classifier.native.native_projector import load_reader
from gateway.cli import NOT_YOURS
from gateway.cli.address import local_url, running_url
from gateway.cli.doctor.asked_backends import ask_backends
from gateway.cli.doctor.disk_checks import examine_disk
from gateway.cli.doctor.finding import Finding, attempt
from gateway.cli.doctor.settings_checks import judge, notices, prompt_caching, provider_keys
from gateway.cli.doctor.store_checks import examine_stores
from gateway.cli.gateway_metrics import samples
from gateway.cli.options import AsJson
from gateway.composition.deployment import load_deployment, load_environment_settings, with_environment
from gateway.config.engine_curve import load_engine_curve
from gateway.config.home import Home, find_home
from gateway.config.settings import Settings
from gateway.counted import counted
from gateway.errors import BreakevenError, StateError
from gateway.extras import install_command, is_installed
from gateway.learning.classifier_versions import ClassifierVersions

EXTRAS = {
    "engine": ("torch", "the bundled engine"),
    "train": ("sklearn", "training the classifier"),
    "postgres": ("asyncpg", "PostgreSQL"),
    "redis": ("redis", "more than one worker"),
    "reports": ("pyarrow", "Parquet export, forecasts and plots"),
    "ui": ("nicegui", "the web UI"),
    "litellm": ("litellm", "importing prices; Azure and Bedrock"),
    "otel": ("opentelemetry.sdk", "traces and metrics over OTLP"),
}
DRIFT, ALARMS = "breakeven_classifier_drift", "breakeven_classifier_alarms"
PROXIES = ("HTTPS_PROXY", "https_proxy", "ALL_PROXY", "all_proxy")
NOT_READY = (
    "without a model, add one and start again; while the engine is loading, wait (engine.log shows how far it is); "
    "otherwise see the gateway's log"
)
ANOTHER_PORT = "find out what it is; if the gateway listens elsewhere, name its port with --port"
NOT_OPTIMISED = (
    "not optimised by a profile, as pyenv's usually is not; a gateway on Debian's, Docker's or uv's serves 1.2 times "
    "as many requests: from a checkout, `make clean`, then `make PYTHON=/usr/bin/python3 serve`"
)
DIRECTLY = "providers and engines are called directly, at each backend's `base_url` (docs/backends.md)"


class _Readiness(msgspec.Struct):
    """What a gateway's `/readyz` says."""

    problems: list[str] = []
    warnings: list[str] = []
    rules_version: str | None = None


def command(
    port: int | None = typer.Option(
        None,
        min=1,
        max=65535,
        help="The gateway's port; that of its last start, or before it of breakeven.yaml, when left out.",
    ),
    asks: bool = typer.Option(
        False, "--ask", help="Also ask every backend for its models with each key; costs nothing."
    ),
    as_json: AsJson = False,
) -> None:
    """Check Python, extras, disk, configuration, database, Redis, provider keys, classifier and the running gateway."""
    findings = list(_examined(port, asks=asks))
    if as_json:
        print(
            json.dumps({"ok": all(f.is_ok or f.fix is None for f in findings), "checks": [asdict(f) for f in findings]})
        )
    else:
        console = Console()
        for finding in findings:
            mark = "[green]ok[/]" if finding.is_ok else "[yellow]--[/]" if finding.fix is None else "[red]no[/]"
            console.print(f"{mark}  {finding.name}: {escape(finding.detail)}", soft_wrap=True)
            if not finding.is_ok and finding.fix:
                console.print(f"    fix: {escape(finding.fix)}", soft_wrap=True)
    if any(not finding.is_ok and finding.fix for finding in findings):
        raise typer.Exit(1)


def _examined(port: int | None, *, asks: bool) -> Iterator[Finding]:
    """A home that may not be read, such as another user's, is a finding too: --json is JSON whatever is wrong."""
    try:
        home = find_home()
        yield from examine(home, gateway_url(home, port), asks=asks)
    except (StateError, OSError) as error:
        yield Finding("state", False, str(error), NOT_YOURS)


def gateway_url(home: Home, port: int | None) -> str:
    """Where the gateway was last started; before its first start, where it would be."""
    if port is not None:
        return local_url("127.0.0.1", port)
    server = None if home.address_file.exists() or (settings := _settings(home)) is None else settings.server
    return local_url(server.host, server.port) if server is not None and server.port else running_url(home)


def examine(home: Home, url: str, *, asks: bool = False) -> Iterator[Finding]:
    """Every check, cheapest first. Backends are asked only if `asks`."""
    settings = _settings(home)
    version = ".".join(str(part) for part in sys.version_info[:3])
    yield Finding("Python", sys.version_info >= (3, 11), version, "install Python 3.11 or newer")
    if not _is_optimised():
        yield Finding("Python's build", False, NOT_OPTIMISED)
    yield _reader()
    has_engine = settings is None or settings.engine.is_enabled
    for extra, (module, purpose) in EXTRAS.items():
        is_there = is_installed(module)
        needed = extra == "engine" and has_engine
        fix = install_command(extra) if needed else None
        missing = f"not installed: {install_command(extra)} adds {purpose}"
        yield Finding(f"extra {extra}", is_there, purpose if is_there else missing, fix)
    yield from examine_disk(home, settings)
    if has_engine:
        yield attempt("throughput curve", lambda: _curve(home), "`breakeven bench engine`")
    fix = "set the variable or edit the file that it names, then `breakeven check`"
    yield (configuration := attempt("configuration", lambda: _configuration(home), fix))
    if settings is not None and configuration.is_ok:  # otherwise the finding above says what is wrong
        yield from examine_stores(home, settings)
    yield provider_keys(settings)
    if asks and configuration.is_ok and home.config_file.exists():
        yield from ask_backends(load_deployment(home))
    yield from prompt_caching(settings)
    yield notices(settings)
    if settings is not None and (named := settings.shadow_calls.asked_judge) is not None and configuration.is_ok:
        yield judge(home, named)
    if proxy := next((name for name in PROXIES if os.environ.get(name)), None):
        yield Finding("proxy", False, f"{proxy} is set and not used: {DIRECTLY}")
    yield _gateway(url)
    yield attempt(
        "classifier",
        lambda: _classifier(home, url),
        "see `breakeven classifier list`; `breakeven classifier learn` makes a correction from feedback",
    )


def _is_optimised() -> bool:
    """Whether a profile optimised this Python; in Debian's packages it did, unsaid by their configuration."""
    return sys.base_prefix == "/usr" or "--enable-optimizations" in (sysconfig.get_config_var("CONFIG_ARGS") or "")


def _reader() -> Finding:
    if load_reader() is None:
        return Finding(
            "native reader", False, "not compiled, so the classifier takes four times as long; install g++ for it"
        )
    return Finding("native reader", True, "compiled, for the classifier")


def _settings(home: Home) -> Settings | None:
    """Before a first start those that it will have; None if they cannot be read, which another check reports."""
    try:
        return _read_settings(home)
    except BreakevenError:
        return None


def _read_settings(home: Home) -> Settings:
    return load_environment_settings(home) if home.config_file.exists() else with_environment(Settings())


def _curve(home: Home) -> str:
    is_assumed = load_engine_curve(home.curve_file).is_assumed
    return "assumed until `breakeven bench engine` has measured it" if is_assumed else "measured"


def _configuration(home: Home) -> str:
    if not home.config_file.exists():
        _read_settings(home)
        return "none yet; `breakeven serve` writes a first one"
    deployment = load_deployment(home)
    return f"{home.config_file} is valid, {counted(len(deployment.catalogue.models(deployment.rules)), 'model')}"


def _classifier(home: Home, url: str) -> str:
    """The classifier in force. Raises OSError if a running gateway raises alarms about it."""
    versions = ClassifierVersions(home.classifier_directory)
    versions.require(active := versions.history()[-1])
    what = f"{active.artefact} + {active.correction or 'no correction'}"
    try:
        found = samples(url, DRIFT, ALARMS)
    except (httpx.HTTPError, ValueError):
        return what
    drift, alarms = (max((one.value for one in found if one.name == name), default=0.0) for name in (DRIFT, ALARMS))
    if alarms:
        told = f"{counted(round(alarms), 'alarm')} (drift index {drift:.2f})"
        raise OSError(f"{what}: {told}; predictions no longer fit what is seen")
    return f"{what}; no alarm"


def _gateway(url: str) -> Finding:
    try:
        answer = httpx.get(f"{url}/readyz", timeout=3, trust_env=False)
        told = msgspec.json.decode(answer.content, type=_Readiness)
    except httpx.ConnectError:
        return Finding("gateway", False, f"nothing answers at {url}", "start it: breakeven serve")
    except (httpx.HTTPError, msgspec.DecodeError) as error:
        return _stranger(url, str(error) or type(error).__name__)
    if answer.status_code not in (200, 503):
        return _stranger(url, f"/readyz answers {answer.status_code}")
    problems, warnings = "; ".join(told.problems), "; ".join(told.warnings)
    if answer.status_code != 200:
        return Finding("gateway", False, f"answers at {url} but is not ready: {problems}", NOT_READY)
    if warnings:
        return Finding(
            "gateway",
            False,
            f"ready at {url}, but {warnings}",
            "see the checks above and the gateway's log; `breakeven check` shows where rules are not valid; renew or "
            "top up a refused key at its provider",
        )
    rules = f", deciding by rules version {told.rules_version}" if told.rules_version else ""
    return Finding("gateway", True, f"ready at {url}{rules}")


def _stranger(url: str, what: str) -> Finding:
    return Finding("gateway", False, f"what answers at {url} hangs or is not a gateway ({what})", ANOTHER_PORT)
