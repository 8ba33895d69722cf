"""What a comparison of the books with a provider's own export is asked and answers."""

from datetime import date
from typing import Protocol

from pydantic import BaseModel, ConfigDict, Field

MOST_CHARACTERS = 30_000_000


class ReconcileBody(BaseModel):
    """`export` is the file's text: a usage or cost export of OpenAI, Anthropic or OpenRouter, JSON or CSV.

    `provider` is the name that the books have for whoever sent it. The days from `since` on and before `until` are
    compared, by default those that the export is of.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    provider: str = Field(min_length=1, max_length=120)
    export: str = Field(max_length=MOST_CHARACTERS)
    since: date | None = None
    until: date | None = None


class ReconciledRow(BaseModel):
    """One UTC day and model. None: their export does not say. `difference_usd` is theirs less ours, which holds nothing
    of the `our_unpriced_requests`."""

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
    """`agrees`: the whole is within half a per cent, or within a cent; None where their export has no dollars."""

    provider: str
    first_day: date
    last_day: date
    our_usd: str
    their_usd: str | None
    difference_usd: str | None
    difference_share: float | None
    agrees: bool | None
    rows: list[ReconciledRow]


class Reconciliations(Protocol):
    async def reconcile(self, body: ReconcileBody) -> ReconciliationView:
        """Raises InvalidRequest, in a sentence, for a text that is no known export."""
        ...
