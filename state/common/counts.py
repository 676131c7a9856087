"""Texts with a number and a noun that agree."""


def many(count: int, one: str, more: str = "") -> str:
    """1 ledger, 2 ledgers, 1,000 ledgers."""
    return f"{count:,} {one if count == 1 else more or one + 's'}"
