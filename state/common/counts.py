"""Texts with a number and a noun that agree."""


def many(count: int, noun: str, more: str = "") -> str:
    """1 ledger, 2 ledgers, 1,000 ledgers."""
    return f"{count:,} {noun if count == 1 else more or noun + 's'}"
