"""What-ifs on this deployment's traffic: every requested GPU and model, best first. Computed off the event loop."""

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from gateway.economics.demand import count_hours
from gateway.economics.errors import EconomicsError
from gateway.economics.gpu_table import GpuTable
from gateway.economics.traffic import HourlyTraffic, Period
from gateway.economics.what_if import Candidate, WhatIf, rank, what_if
from gateway.errors import InvalidRequest
from gateway.instants import moment_of
from gateway.money import PICO_PER_USD, format_usd
from gateway.reports.books import Books
from gateway.reports.plans import hosted_alternative, most_used, pick_alternative
from gateway.reports.what_if_views import Refused, WhatIfQuery, WhatIfRow, WhatIfView
from gateway.routing.snapshot import Snapshot
from gateway.sums import ReportStore

SEED = 20261101
"""Fixed, so that the same question has the same answer."""


@dataclass(frozen=True, slots=True)
class WhatIfOf:
    """What questions are answered from."""

    snapshot: Callable[[], Snapshot]
    table: Callable[[], GpuTable]


class WhatIfService:
    """Answers `/reports/what-if` and `breakeven what-if`."""

    def __init__(self, store: ReportStore, books: Books, deployment: WhatIfOf) -> None:
        self._store = store
        self._books = books
        self._of = deployment

    async def what_if(self, query: WhatIfQuery) -> WhatIfView:
        """Raises InvalidRequest."""
        known = await self._books.known_hours(query, of="a what-if")
        since, until = known.since_us, known.until_us
        rows = await self._store.hourly_traffic(since, until) if since < until else []
        moved = query.moved_models()
        chosen = [row for row in rows if moved is None or row.model in moved]
        if not any(row.requests for row in chosen):
            there = ", ".join(sorted({row.model for row in rows})) or "nothing"
            raise InvalidRequest(
                f"None of these models had traffic from {moment_of(since):%Y-%m-%d} to {moment_of(until):%Y-%m-%d}; "
                f"there was: {there}.",
                param="moved",
            )
        return await asyncio.to_thread(self._compute, query, chosen, Period(since, until))

    def _compute(self, query: WhatIfQuery, rows: Sequence[HourlyTraffic], period: Period) -> WhatIfView:
        table, snapshot = self._of.table(), self._of.snapshot()
        hosted = hosted_alternative(pick_alternative(snapshot, query.hosted_model, most_used(rows)))
        hours = count_hours(rows, period, hosted)
        answers: list[WhatIf] = []
        refused: list[Refused] = []
        day = moment_of(self._books.now_us()).date()
        for candidate in _candidates(query, table):
            generator = np.random.default_rng(SEED)
            try:
                answers.append(what_if(hours, candidate, table, day=day, generator=generator))
            except EconomicsError as error:
                refused.append(Refused(gpu=candidate.gpu, model=candidate.model, reason=f"{error}."))
        if not answers and len(refused) == 1:
            raise InvalidRequest(refused[0].reason)
        return WhatIfView(
            hosted=hosted.name,
            requests_per_day=sum(row.requests for row in rows) * 24 / period.hours,
            hours_per_month=answers[0].report.month.hours if answers else 0.0,
            answers=[_row(answer) for answer in rank(answers)],
            refused=refused,
            gpus=[gpu.name for gpu in table.gpus],
            models=[model.name for model in table.models],
        )


def _candidates(query: WhatIfQuery, table: GpuTable) -> list[Candidate]:
    """Names missing from the table are refused later, with an error that lists those it has."""
    gpus = [query.gpu] if query.gpu is not None else [gpu.name for gpu in table.gpus]
    models = [query.model] if query.model is not None else [model.name for model in table.models]
    return [
        Candidate(
            gpu=gpu,
            model=model,
            gpus_per_replica=query.gpus_per_replica,
            replicas=query.replicas,
            quality=query.quality,
            fixed_month_pico_usd=round(query.fixed_usd_per_month * PICO_PER_USD),
            time_per_output_token_seconds=query.time_per_output_token_seconds,
        )
        for gpu in gpus
        for model in models
    ]


def _row(answer: WhatIf) -> WhatIfRow:
    report, candidate = answer.report, answer.candidate
    confidence = report.confidence
    return WhatIfRow(
        gpu=candidate.gpu,
        model=candidate.model,
        gpus_per_replica=candidate.gpus_per_replica,
        replicas=candidate.replicas,
        gpu_hour_usd=format_usd(answer.price.pico_usd_per_hour, places=4),
        price_basis=answer.price.basis,
        price_source=answer.price.source,
        speed_basis=answer.curve_basis,
        speed_source=answer.curve_source,
        concurrency=answer.concurrency,
        hosted_usd=f"{report.month.all_hosted_usd:f}",
        month_usd=f"{report.month.plan_usd:f}",
        saving_usd=f"{report.month.plan_saving_usd:f}",
        saving_low_usd=f"{confidence.saving_low_usd:f}" if confidence else None,
        saving_high_usd=f"{confidence.saving_high_usd:f}" if confidence else None,
        probability_cheaper=confidence.probability_owning_is_cheaper if confidence else None,
        break_even_utilisation=report.unit.break_even_utilisation,
        expected_utilisation=report.owned.utilisation,
        break_even_requests_per_day=report.volume.hybrid.requests_per_day if report.volume.hybrid else None,
        verdict=report.verdict,
    )
