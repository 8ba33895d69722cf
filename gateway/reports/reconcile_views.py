"""The query and the answer of a comparison of the ledger with a provider's own export."""

from datetime import date
from typing import Protocol

from pydantic import BaseModel, Field

from gateway.strict import Strict

MOST_CHARACTERS = 30_000_000


class ReconcileBody(Strict):
    """`export` is the text of a usage or cost export of OpenAI, Anthropic or OpenRouter, or of a bill of Amazon's,
    Azure's or Google's, JSON or CSV.

    `provider` is the provider's name in the ledger. `since` and `until` (exclusive) default to the days that the
    export covers. `named` maps names of the export to the model names of this answer's rows that they mean.
    """

    provider: str = Field(min_length=1, max_length=120)
    export: str = Field(max_length=MOST_CHARACTERS)
    since: date | None = None
    until: date | None = None
    named: dict[str, str] = Field(default_factory=dict, max_length=1000)


class ReconciledRow(BaseModel):
    """One UTC day and model. Figures that the export does not have are null. `difference_usd` is the provider's amount
    minus ours, which leaves out `our_unpriced_requests`."""

    day: date
    model: str
    our_requests: int
    our_unpriced_requests: int
    their_requests: int | None
    our_input_tokens: int
    their_input_tokens: int | None
    our_output_tokens: int
    their_output_tokens: int | None
    our_usd: str
    their_usd: str | None
    difference_usd: str | None
    likely_reason: str


class ReconciliationView(BaseModel):
    """`agrees`: the totals differ by at most 0.5 % or one cent; null if the export has no amounts. `left_out_usd`: what
    the export charges for anything else (taxes, credits, a cloud's other services, other days), by what it is; no total
    here has it. Null if it is not known in USD."""

    provider: str
    first_day: date
    last_day: date
    our_usd: str
    their_usd: str | None
    difference_usd: str | None
    difference_share: float | None
    agrees: bool | None
    left_out_usd: dict[str, str | None]
    rows: list[ReconciledRow]


class Reconciliations(Protocol):
    async def reconcile(self, body: ReconcileBody) -> ReconciliationView:
        """Raises InvalidRequest, with a sentence, for text that is not a known export."""
        ...
