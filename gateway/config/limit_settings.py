"""The `limits` block of breakeven.yaml: what teams and models may use."""

from typing import Annotated

from pydantic import Field

from gateway.limits.values import MOST_COUNT, Rates, SharedLimits
from gateway.strict import Strict

Name = Annotated[str, Field(min_length=1, max_length=120)]
Count = Annotated[int, Field(ge=1, le=MOST_COUNT)]


class RateSettings(Strict):
    """Across all keys; tokens are input tokens."""

    requests_per_minute: Count | None = None
    tokens_per_minute: Count | None = None
    max_parallel_requests: Count | None = None


class LimitSettings(Strict):
    """Rates of teams and of models; a key's own limits are stored with the key."""

    teams: dict[Name, RateSettings] = Field(default_factory=dict[str, RateSettings])
    models: dict[Name, RateSettings] = Field(default_factory=dict[str, RateSettings])


def shared_limits(limits: LimitSettings, tiers: dict[str, list[str]]) -> SharedLimits:
    """The limits in admission's form."""
    return SharedLimits(
        teams={name: _rates(one) for name, one in limits.teams.items()},
        models={name: _rates(one) for name, one in limits.models.items()},
        tiers={name: frozenset(models) for name, models in tiers.items()},
    )


def _rates(one: RateSettings) -> Rates:
    return Rates(one.requests_per_minute, one.tokens_per_minute, one.max_parallel_requests)
