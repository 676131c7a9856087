import time

import pytest

from trueup.state.common.errors import BadSettings
from trueup.state.common.patterns import LONGEST, matches, problem_of


def test_a_pattern_that_backtracks_for_ever_elsewhere_is_matched_at_once() -> None:
    began = time.process_time()
    assert not matches(["/(a+)+b/"], "a" * 249)
    assert time.process_time() - began < 1


@pytest.mark.parametrize("regex", [r"(?=a)b", r"(?<!a)b", r"(a)\1"])
def test_what_re2_lacks_is_named(regex: str) -> None:
    assert problem_of(f"/{regex}/").endswith("(RE2 has no lookaround and no backreferences)")


@pytest.mark.parametrize(
    ("regex", "problem"),
    [
        ("", "the expression is empty"),
        ("(", "missing ): ("),
        (r"\pL{1000}", "pattern too large - compile failed"),
        ("a" * (LONGEST + 1), f"it has {LONGEST + 1} characters; the limit is 10,000"),
        ("(a{1000}){1000}", "invalid repetition size: {1000}"),
    ],
)
def test_what_cannot_be_used_is_refused_with_its_reason(regex: str, problem: str) -> None:
    assert problem_of(f"/{regex}/") == problem


@pytest.mark.parametrize("regex", ["a{99999999999}", "a{,5}", "a{", "{x}"])
def test_a_brace_that_re2_would_take_for_text_is_refused(regex: str) -> None:
    assert problem_of(f"/{regex}/").startswith("{ must be followed by a repetition count")


@pytest.mark.parametrize("regex", [r"a{2}", r"a{2,}", r"a{2,5}", r"\{x", r"\p{Greek}+", r"\x{e9}", r"[a-z_.-]+"])
def test_usable_expressions_are_used(regex: str) -> None:
    assert problem_of(f"/{regex}/") == ""


def test_an_expression_matches_the_whole_name() -> None:
    assert [matches(["/a|ab/"], name) for name in ("a", "ab", "abc", "xa")] == [True, True, False, False]


def test_a_name_that_is_no_utf8_is_no_error() -> None:
    assert not matches(["/[a-z]*/"], "a\ud800")


def test_an_unchecked_expression_is_an_error_of_the_settings() -> None:
    with pytest.raises(BadSettings, match="expected a regular expression of RE2"):
        matches(["/(?=a)b/"], "b")
