"""Dollars as people type them into forms. Pure; knows no page."""

import re

from dashboards.forms.problem import WrongField

THOUSANDS = re.compile(r"\d{1,3}(,\d{3})+(\.\d*)?")


def typed_usd(text: str | None, field: str) -> str:
    """`$1,500.50` becomes 1500.50; empty stays empty. Raises WrongField if a comma does not separate thousands:
    12,50 must not become 1250."""
    amount = (text or "").replace("$", "").strip()
    if "," not in amount:
        return amount
    if THOUSANDS.fullmatch(amount) is None:
        said = f"{amount!r} is not an amount of dollars: write cents after a point (12.50), thousands as 1,250."
        raise WrongField(field, said)
    return amount.replace(",", "")
