"""`--where` of the cost commands: filters the books, and suggests what exists when a filter matched nothing."""

import typer

from gateway.cli.state import State
from gateway.reports.books import Books
from gateway.reports.views import CostQuery, CostTable

MOST_NAMED = 20
NO_NAME = "(none)"
"""No team, project, key or tag can be called so."""


def filters(where: list[str] | None) -> dict[str, str]:
    """`team=search` as a field of the query. Raises BadParameter naming what can be filtered."""
    found: dict[str, str] = {}
    for text in where or []:
        name, sign, value = text.partition("=")
        if not sign or name not in CostQuery.FILTERS:
            raise typer.BadParameter(f"--where {text}: takes NAME=VALUE with one of {', '.join(CostQuery.FILTERS)}")
        found[name] = value
    return found


async def with_key_id(state: State, query: CostQuery) -> CostQuery:
    """Replaces a key's name, as tables show it, by its id. Raises BadParameter if several keys have that name."""
    if query.key is None:
        return query
    records = [one.record for one in await state.keys.list()]
    found = [one.id for one in records if one.name == query.key]
    if not found or any(one.id == query.key for one in records):
        return query
    if len(found) > 1:
        raise typer.BadParameter(f"{len(found)} keys are called {query.key!r}; say which by its id: {', '.join(found)}")
    return query.model_copy(update={"key": found[0]})


async def why_nothing(books: Books, query: CostQuery, table: CostTable) -> list[str]:
    """Explains a table that filters left empty: a misspelt team has not spent $0. Empty for any other table."""
    given = query.filters()
    if table.rows or not given:
        return []
    said: list[str] = []
    for name, value in given.items():
        if name == "end_user":  # there may be very many, and they are nobody else's business
            continue
        there = await books.costs(query.model_copy(update={**dict.fromkeys(CostQuery.FILTERS), "by": name}))
        known = sorted(text for row in there.rows if (text := row.group[name]) is not None)
        if value not in known:
            called = [there.key_names.get(one, one) or NO_NAME for one in known]
            more = f" and {len(called) - MOST_NAMED} more" if len(called) > MOST_NAMED else ""
            there_is = ", ".join(called[:MOST_NAMED]) or "none"
            said.append(f"Nothing in this time has {name}={value or ''}; there is: {there_is}{more}.")
    whole = ", ".join(f"{name}={value or ''}" for name, value in given.items())
    return said or [f"Nothing in this time has all of: {whole}."]
