"""What reports are grouped and filtered by, as queries name it."""

from collections.abc import Mapping
from typing import Final, get_args

from gateway.sums import Dimension

INTERNAL: Final = frozenset({"upstream_model", "is_simulated", "tags"})
"""What only other rooms group by."""
DIMENSIONS: Final[tuple[str, ...]] = tuple(one for one in get_args(Dimension) if one not in INTERNAL)


def as_dimensions(text: str) -> str:
    """Names of dimensions, separated by commas, without blanks. Raises ValueError."""
    names = [part.strip() for part in text.split(",") if part.strip()]
    unknown = [name for name in names if name not in DIMENSIONS]
    if unknown or not 1 <= len(names) <= 3 or len(set(names)) != len(names):
        raise ValueError(f"takes one to three different names of: {', '.join(DIMENSIONS)}")
    return ",".join(names)


def filters_of(fields: Mapping[str, str | None]) -> dict[str, str | None]:
    """The filters among a query's fields. Empty text is for requests that have no team, project or tag. All have a
    key: shadow calls and their judge one of their own, named like the operation."""
    given = {name: value for name, value in fields.items() if value is not None}
    return {name: value if name == "key" else value or None for name, value in given.items()}
