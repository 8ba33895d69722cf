"""`breakeven demo --month`: a made-up month in its own database, so that every page has something to show."""

import asyncio
import json
import os
import shutil
from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from datetime import UTC, datetime, timedelta
from itertools import islice
from pathlib import Path

from rich.console import Console
from sqlalchemy.ext.asyncio import AsyncEngine

from gateway.cli.demo.traffic import DAYS, Team, make_month
from gateway.composition.deployment import ADDRESS_VARIABLES, Deployment, load_deployment
from gateway.config.first_files import write_first_files
from gateway.config.home import Home, create_home
from gateway.errors import StateError
from gateway.instants import HOUR_US
from gateway.routing.rules import RulesDocument
from gateway.routing.snapshot import Snapshot
from gateway.rulebook.service import RulesService
from gateway.storage.database import migrate_engine, open_database
from gateway.storage.sql.budgets import SqlBudgets
from gateway.storage.sql.keys import SqlKeyStore
from gateway.storage.sql.ledger import SqlLedger
from gateway.storage.sql.reports import SqlReports
from gateway.storage.sql.rules import SqlRulesStore
from gateway.stores import Budget, NewKey
from gateway.sums import SumsQuery

AUTHOR = "demo"
RULE_CHANGE_DAY = 18
PRICE_CHANGE_DAY = 22
BATCH = 2000
ABILITY = {"small": 0.36, "middle": 0.70, "large": 0.86}
"""Made-up shares of good answers: our own model, and hosted ones by the price of their output."""

CHEAPER_HOUR = ('gpu_hour_usd: "0.10"', 'gpu_hour_usd: "0.02"')
"""A GPU so cheap that it pays for itself from a few thousand requests a day."""

LABEL = """\
# DEMONSTRATION DATA. Everything in this directory is made up by `breakeven demo --month`: no request happened and no
# money was spent. To look at it: BREAKEVEN_HOME=THIS_DIRECTORY breakeven serve
"""
EARLIER_RULES_CHANGE = ("min_quality: 0.6}", "min_quality: 0.72}")
TERMS = """\
# A made-up discount, so that a price change can be seen in the month.
overrides:
  - {{provider: openai, discount: "0.15", from: {day}}}
"""

PICO_PER_CENT = 10**10
PORT = 8090
BUDGET_FACTORS = {"": 1.15, "support": 1.4, "research": 0.7}
"""Budgets as factors of the month's cost: for everything, for a team that will keep to it and one that will not."""

APP_LIMITS = {"support-bot": {"budget_usd": "40", "requests_per_minute": 600}, "nightly-cron": {"budget_usd": "1"}}

# The key's name, and its traffic.
APPS: dict[str, Team] = {
    "support-bot": Team("", "support", "chat", 0.46, 0.28, 620, 140, 0.55),
    "search-rewrite": Team("", "search", "query-rewrite", 0.27, 0.16, 180, 30, 0.0),
    "research-notebooks": Team("", "research", None, 0.13, 0.66, 2400, 620, 0.3),
    "contract-reader": Team("", "legal", "contracts", 0.06, 0.48, 1400, 220, 0.1, is_private=True),
    "nightly-cron": Team("", None, None, 0.08, 0.35, 900, 90, 0.0),
}


@dataclass(frozen=True, slots=True)
class DemoMonth:
    """What was written, and the secrets of the keys to look at it with."""

    home: Home
    entries: int
    owner_key: str
    finance_key: str
    viewer_key: str
    app_key: str


async def write_demo_month(
    home: Home,
    *,
    now: datetime | None = None,
    requests: int,
    progress: Callable[[int], None] = lambda done: None,
) -> DemoMonth | None:
    """Makes BREAKEVEN_HOME/demo, whole or not at all; None if it exists. `progress` hears how many are written."""
    kept, demo = Home(home.root / "demo"), Home(home.root / "demo.part")
    if kept.root.exists():
        return None
    shutil.rmtree(demo.root, ignore_errors=True)  # of a run that was killed
    end = (now or datetime.now(UTC)).replace(minute=0, second=0, microsecond=0)
    begin_us = _begin_us(end)
    _write_files(demo, end)
    if home.models_directory.is_dir():  # or the demonstration would download the model again
        demo.models_directory.symlink_to(Path("..", home.models_directory.name))
    deployment = load_deployment(demo, environ={})
    database = open_database(deployment.database_url)
    try:
        await migrate_engine(database)
        keys = SqlKeyStore(database, demo.pepper(), now_us=lambda: begin_us)
        roles = {role: await keys.create(NewKey(f"demo-{role}", role), author=AUTHOR) for role in ROLES}
        teams: list[Team] = []
        app_key = ""
        for name, app in APPS.items():
            key, secret = await keys.create(
                NewKey(name, "app", app.team, app.project, ("demo",)), author=AUTHOR, limits=APP_LIMITS.get(name)
            )
            teams.append(replace(app, key_id=key.record.id))
            app_key = app_key or secret
        snapshots = await _rules_and_snapshots(deployment, SqlRulesStore(database), end)
        entries = make_month(teams, snapshots.at, snapshots.quality, end=end, requests=requests)
        written = 0
        while batch := list(islice(entries, BATCH)):
            written += await SqlLedger(database).insert(batch)
            progress(written)
        await _set_budgets(database, end)
    finally:
        await database.dispose()
    demo.root.rename(kept.root)
    secrets = {role: secret for role, (_, secret) in roles.items()}
    return DemoMonth(kept, written, secrets["owner"], secrets["finance"], secrets["viewer"], app_key)


def _begin_us(end: datetime) -> int:
    return round((end - timedelta(days=DAYS)).timestamp()) * 1_000_000


async def _set_budgets(database: AsyncEngine, end: datetime) -> None:
    """What a month's budget would be after such a month: one with room, one without, one for everything."""
    store, until_us = SqlBudgets(database), round(end.timestamp()) * 1_000_000
    sums = await SqlReports(database).sums(SumsQuery(0, until_us, ("team",)))
    spent = {row.group["team"] or "": row.corrected_cost_pico_usd for row in sums}
    for team, factor in BUDGET_FACTORS.items():
        whole = sum(spent.values()) if team == "" else spent.get(team, 0)
        cents = max(1, round(whole * factor / PICO_PER_CENT))
        await store.set(Budget("team" if team else "all", team, cents * PICO_PER_CENT, AUTHOR, until_us))


ROLES = ("owner", "finance", "viewer", "editor")


def _write_files(demo: Home, end: datetime) -> None:
    create_home(demo)
    write_first_files(demo)
    changed_on = (end - timedelta(days=DAYS - PRICE_CHANGE_DAY)).date()
    (demo.root / "prices.yaml").write_text(LABEL + TERMS.format(day=changed_on), encoding="utf-8")
    config = demo.config_file.read_text(encoding="utf-8").replace(*CHEAPER_HOUR)
    demo.config_file.write_text(LABEL + config + "\nprice_overrides: [prices.yaml]\n", encoding="utf-8")
    rules = demo.rules_file.read_text(encoding="utf-8")
    demo.rules_file.write_text(LABEL + rules, encoding="utf-8")


class _Snapshots:
    """What routing knew at each hour of the month."""

    def __init__(self, deployment: Deployment, changes: list[tuple[int, RulesDocument, str]]) -> None:
        self._deployment = deployment
        self._changes = changes
        self._made: dict[int, Snapshot] = {}
        latest = deployment.catalogue.models(deployment.rules)
        hosted = sorted((name for name, spec in latest.items() if spec.backend != "local"), key=self._output_price)
        # The catalogue may be younger than the month, and requests without a price make a poor demonstration.
        histories = [self._deployment.prices.history(*key) for key in self._deployment.prices.models("openai")]
        self._priced_from_us = min((history[0].from_us for history in histories), default=0)
        self.quality = {name: ABILITY["small"] for name, spec in latest.items() if spec.backend == "local"}
        self.quality |= dict.fromkeys(hosted, ABILITY["middle"])
        if hosted:
            self.quality[hosted[-1]] = ABILITY["large"]

    def at(self, at_us: int) -> Snapshot:
        """Prices and rules of that hour."""
        hour = at_us // HOUR_US
        if hour not in self._made:
            self._made = {hour: self._make(hour * HOUR_US)}
        return self._made[hour]

    def _make(self, at_us: int) -> Snapshot:
        _, document, version = max((one for one in self._changes if one[0] <= at_us), key=lambda one: one[0])
        return self._deployment.catalogue.snapshot(
            document,
            self._deployment.prices,
            classifier_version="demo",
            at_us=max(at_us, self._priced_from_us),
            text_version=version,
        )

    def _output_price(self, name: str) -> int:
        one = self._deployment.catalogue.snapshot(
            self._deployment.rules, self._deployment.prices, classifier_version="demo", at_us=1 << 52
        ).candidates[name]
        return one.prices.rates.output if one.prices else 0


async def _rules_and_snapshots(deployment: Deployment, store: SqlRulesStore, end: datetime) -> _Snapshots:
    """Stricter rules for the first part of the month, then those of rules.yaml, activated on their day."""
    changes: list[tuple[int, RulesDocument, str]] = []
    clock = [_begin_us(end)]

    def apply(document: RulesDocument, version: str) -> None:
        changes.append((clock[0], document, version))

    def service(file: Path | None) -> RulesService:
        return RulesService(store, deployment.catalogue, apply, now_us=lambda: clock[0], file=file)

    early = service(None)
    earlier = deployment.rules_text.replace(*EARLIER_RULES_CHANGE)
    first = await early.put(earlier, author=AUTHOR, reason="start of the month", expected_active=None)
    await early.activate(first.version, author=AUTHOR, reason=first.reason, expected_active=None)
    clock[0] += RULE_CHANGE_DAY * 24 * HOUR_US
    await service(deployment.home.rules_file).refresh()
    return _Snapshots(deployment, changes)


def run_month(home: Home, *, requests: int, as_json: bool) -> None:
    """What `breakeven demo --month` does: writes the month and says how to look at it. Raises StateError."""
    console = Console(highlight=False, stderr=as_json, soft_wrap=True)  # a command that is broken up cannot be pasted
    with console.status("Making up a month of traffic") as status:

        def progress(done: int) -> None:
            status.update(f"Making up a month of traffic: {done:,} requests")

        month = asyncio.run(write_demo_month(home, requests=requests, progress=progress))
    if month is None:
        raise StateError(f"{home.root / 'demo'} holds a demonstration already; delete it to make another")
    if as_json:
        print(json.dumps({**asdict(month), "home": str(month.home.root)}))
        return
    console.print(f"Wrote {month.entries:,} made-up requests of 30 days to {month.home.root}; no model was called.\n")
    for role, key in (("owner", month.owner_key), ("finance", month.finance_key), ("app", month.app_key)):
        console.print(f"  {role + ' key':12} {key}")
    # Neither the default port nor the databases and the webhook of the reader's own gateway.
    without = "".join(f"{name}= " for name in ADDRESS_VARIABLES if os.environ.get(name))
    console.print(f"\nLook at it:  {without}BREAKEVEN_HOME={month.home.root} breakeven serve --port {PORT}")
    console.print(f"and sign in at http://127.0.0.1:{PORT}/ui with the owner key.")
