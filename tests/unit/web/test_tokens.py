"""The file of tokens: its lines, and the digest that a token must have."""

import hashlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trueup.state.settings.roles import Role
from trueup.state.settings.tokens import MOST_TOKENS, digest_of, find, line_of, parse

TOKEN = "trueup_0123456789"
GOOD = line_of("alice", Role.APPROVER, TOKEN)


def test_a_line_has_the_digest_and_not_the_token() -> None:
    assert f"alice approver sha256:{hashlib.sha256(TOKEN.encode()).hexdigest()}" == GOOD


def test_a_token_is_found_by_its_digest() -> None:
    tokens, problems = parse(f"# callers\n\n{GOOD}  # of alice\n{line_of('bob', Role.VIEWER, 'other')}\n")
    found = find(tokens, digest_of(TOKEN))
    assert (found.name if found else None, found.role if found else None, problems) == ("alice", Role.APPROVER, [])


@pytest.mark.parametrize("sent", ["", TOKEN[:-1], TOKEN + " ", TOKEN.upper(), GOOD.split(":")[1], "\ud800"])
def test_another_token_is_not_found(sent: str) -> None:
    assert find(parse(GOOD)[0], digest_of(sent)) is None


@pytest.mark.parametrize(
    ("line", "problem"),
    [
        ("alice", "found 1 word"),
        (f"{GOOD} x", "found 4 words"),
        (GOOD.replace("approver", "root"), "a role"),
        (GOOD.replace("alice", "a/b"), "a name"),
        (GOOD[:-1], "64 hexadecimal"),
        (GOOD.upper(), "a role"),
        (f"alice admin {TOKEN}", "64 hexadecimal"),
        (GOOD.replace("sha256", "md5"), "64 hexadecimal"),
    ],
)
def test_a_bad_line_is_a_problem_with_its_place_and_the_others_work(line: str, problem: str) -> None:
    tokens, problems = parse(f"{line_of('bob', Role.VIEWER, 'other')}\n{line}\n{line_of('eve', Role.ADMIN, 'third')}")
    assert ([token.name for token in tokens], len(problems)) == (["bob", "eve"], 1)
    assert problems[0].startswith("line 2: ")
    assert problem in problems[0]


def test_a_problem_does_not_repeat_the_line() -> None:
    _, problems = parse(f"alice admin {TOKEN}\n{TOKEN}\n{TOKEN} admin x\nalice {TOKEN} x")
    assert (len(problems), TOKEN in "".join(problems)) == (4, False)


def test_the_first_line_with_a_digest_applies() -> None:
    tokens, problems = parse(f"{GOOD}\n{GOOD.replace('approver', 'admin')}")
    assert ([token.role for token in tokens], problems[0][:6]) == ([Role.APPROVER], "line 2")


def test_a_caller_may_have_two_tokens() -> None:
    assert len(parse(f"{GOOD}\n{line_of('alice', Role.APPROVER, 'next')}")[0]) == 2


def test_a_file_of_too_many_tokens_ends_with_a_problem() -> None:
    lines = [line_of(f"n{number}", Role.VIEWER, str(number)) for number in range(MOST_TOKENS + 5)]
    tokens, problems = parse("\n".join(lines))
    assert (len(tokens), len(problems)) == (MOST_TOKENS, 1)


@given(st.text(max_size=200))
def test_any_text_is_read(text: str) -> None:
    tokens, problems = parse(text)
    assert len(tokens) + len(problems) <= len(text.splitlines())


def test_the_representation_of_a_token_has_no_digest() -> None:
    assert "digest" not in repr(parse(GOOD)[0])
