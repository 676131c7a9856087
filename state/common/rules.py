"""Rules and verdicts: the reasons behind each verdict, as `trueup explain` prints them."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import IntEnum


class Verdict(IntEnum):
    """The verdict on a resource. Trueup acts only on DRIFTED."""

    TRUE = 0
    DRIFTED = 1
    BLOCKED = 2  # differs from the desired state, and no remedy exists now
    UNKNOWN = 3  # not observable


@dataclass(frozen=True, slots=True)
class Rule:
    """One rule."""

    id: str
    verdict: Verdict
    title: str
    why: str
    """The meaning of the rule, and its evidence."""
    remedy: str
    """What Trueup does, and what changes the verdict."""


class Rules:
    """The table of rules. A rule's code is its index and fits in one byte."""

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
        """The rule with this id, or None."""
        code = self._codes.get(rule)
        return None if code is None else self._rules[code]
