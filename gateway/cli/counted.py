"""Numbers with their nouns, for the sentences that commands print."""


def counted(number: int, noun: str) -> str:
    """`1 request`, `1,234 requests`."""
    return f"{number:,} {noun}{'' if number == 1 else 's'}"
