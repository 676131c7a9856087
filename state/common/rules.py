"""Rules and verdicts: why something is said of a thing, as `trueup explain` prints it."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import IntEnum


class Verdict(IntEnum):
    """What is said of a thing. Only DRIFTED is ever acted upon."""

    TRUE = 0
    DRIFTED = 1
    BLOCKED = 2  # not as it should be, and no remedy exists now
    UNKNOWN = 3  # we are blind


@dataclass(frozen=True, slots=True)
class Rule:
    """One rule. ``why``: what it means and what shows it; ``remedy``: what Trueup does, what changes the verdict."""

    id: str
    verdict: Verdict
    title: str
    why: str
    remedy: str


class Rules:
    """The table. A rule's code is its place in it, and fits a byte."""

    def __init__(self, rules: Sequence[Rule]) -> None:
        self._rules = tuple(rules)
        self._codes = {rule.id: code for code, rule in enumerate(self._rules)}
        assert len(self._codes) == len(self._rules) <= 0x100, "ids are unique and codes fit a byte"

    def __iter__(self) -> Iterator[Rule]:
        return iter(self._rules)

    def __len__(self) -> int:
        return len(self._rules)

    def __getitem__(self, code: int) -> Rule:
        return self._rules[code]

    def code(self, rule: str) -> int:
        """Code of a rule id. Raises KeyError for an id that is not in the table."""
        return self._codes[rule]

    def find(self, rule: str) -> Rule | None:
        """The rule of this id, if there is one."""
        code = self._codes.get(rule)
        return None if code is None else self._rules[code]
