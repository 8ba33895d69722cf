"""Numbers with their nouns, for sentences that people read."""


def counted(number: int, noun: str) -> str:
    """`1 request`, `1,234 requests`."""
    return f"{number:,} {noun}{'' if number == 1 else 's'}"
