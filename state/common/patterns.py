"""Name patterns in settings: exact names, and ``/regular expressions/`` in the syntax of RE2.

RE2 matches in time linear in the length of the name, so no pattern can block the interpreter. It supports neither
lookaround nor backreferences.
"""

import re
from collections.abc import Iterable, Iterator
from functools import lru_cache
from typing import Any

import re2

from trueup.state.common.errors import BadSettings
from trueup.state.common.options import shown

LONGEST = 10_000
"""Characters of a pattern."""
_PROGRAM_BYTES = 1 << 20
_ESCAPED = re.compile(r"\\(?:[pPx]\{[^}]*\}|.)", re.DOTALL)
_NO_COUNT = re.compile(r"\{(?!\d{1,4}(?:,\d{0,4})?\})")  # RE2 silently treats such a brace as literal text


def regex_of(pattern: str) -> str | None:
    """The expression between the slashes; None for an exact name."""
    return pattern[1:-1] if len(pattern) > 1 and pattern[0] == pattern[-1] == "/" else None


def problem_of(pattern: str) -> str:
    """The problem with a pattern's regular expression; empty if it is valid or the pattern is an exact name."""
    regex = regex_of(pattern)
    if regex is None:
        return ""
    if not regex:
        return "the expression is empty"
    if len(regex) > LONGEST:
        return f"it has {len(regex)} characters; the limit is {LONGEST:,}"
    if _NO_COUNT.search(_ESCAPED.sub("", regex)):
        return "{ must be followed by a repetition count of at most 1000; write \\{ for a literal brace"
    try:
        _compiled(regex)
    except re2.error as error:
        return _reason(error)
    return ""


def problems_of(path: str, patterns: Iterable[str]) -> Iterator[str]:
    """What is wrong with the patterns of a settings key, a line for each."""
    for pattern in patterns:
        if problem := problem_of(pattern):
            yield f"{path}: expected a regular expression between slashes; found {shown(pattern)}: {problem}"


def matches(patterns: Iterable[str], name: str) -> bool:
    """Whether a name equals one of ``patterns`` or is fully matched by a ``/regular expression/`` among them.

    Raises `BadSettings` for an expression that `problem_of` rejects.
    """
    return any(name == pattern if regex_of(pattern) is None else _matched(pattern, name) for pattern in patterns)


def _matched(pattern: str, name: str) -> bool:
    try:
        return _compiled(pattern[1:-1]).fullmatch(_bytes(name)) is not None
    except re2.error as error:
        problem = f"expected a regular expression of RE2; found {pattern[:200]!r}: {_reason(error)}"
        raise BadSettings([problem]) from None


@lru_cache(1_024)
def _compiled(regex: str) -> Any:
    options = re2.Options()
    options.log_errors, options.never_capture, options.max_mem = False, True, _PROGRAM_BYTES
    return re2.compile(_bytes(regex), options)


def _bytes(text: str) -> bytes:
    return text.encode("utf-8", "surrogatepass")


def _reason(error: Exception) -> str:
    """RE2's error message."""
    (message,) = error.args
    message = message.decode("utf-8", "replace")
    unsupported = message.startswith(("invalid perl operator: (?", "invalid escape sequence: \\"))
    return f"{message[:200]} (RE2 has no lookaround and no backreferences)" if unsupported else message[:200]
