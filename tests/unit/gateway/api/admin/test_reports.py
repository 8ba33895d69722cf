"""The JSON of a cost report, row by row."""

from datetime import UTC, datetime

import pytest

from gateway.api.admin.reports import as_json
from gateway.reports.cost_rows import cost_row, empty_row
from gateway.reports.views import CostTable, EarlierCost, EarlierCosts
from gateway.sums import Sums

AT = datetime(2026, 11, 28, tzinfo=UTC)


@pytest.mark.parametrize("end_users", [[], ["one"], ['"rows":[]', "two \\ é", None]])
def test_it_is_what_the_model_says(end_users: list[str | None]) -> None:
    nothing = EarlierCost(requests=0, unpriced_requests=0, cost_usd="0")
    table = CostTable(
        since=AT,
        until=AT,
        books_begin=None,
        time_zone="UTC",
        as_of=None,
        by=["end_user"],
        key_names={"rows": '"rows":[]'},
        groups=len(end_users),
        rows=[cost_row(Sums({"end_user": one}, requests=1), None, None) for one in end_users],
        others=None,
        dearest=[],
        total=empty_row(),
        earlier=EarlierCosts(since=AT, until=AT, total=nothing, is_by_group=True, rows=[], others=None, ceased=0),
        unallocated_usd=None,
        unallocated_share=None,
        shadow_usd="0",
        judge_usd="0",
        idle=None,
        savings=[],
        saved_by_prompt_caches_usd="0",
    )
    assert as_json(table) == table.model_dump_json().encode()
