"""The file of tokens: one line per token, ``NAME ROLE sha256:DIGEST``; empty lines and lines from # on are ignored.

The digest is SHA-256 of the whole token, in hexadecimal. A token has 256 random bits, so that a slow hash, which
protects guessable passwords, would add nothing. Two lines may have the same name: the old and the new token of a
rotation.
"""

import hashlib
import hmac
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from trueup.state.common.counts import many
from trueup.state.settings.roles import Role

PREFIX, RANDOM_BYTES = "trueup_", 32
MOST_TOKENS, LONGEST_TOKEN = 1_000, 512
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._@-]{0,63}")
_DIGEST = re.compile(r"sha256:([0-9a-f]{64})")
ROLES = {role.text: role for role in Role}


@dataclass(frozen=True, slots=True)
class Token:
    """A line of the file."""

    name: str
    role: Role
    digest: bytes = field(repr=False)
    """The SHA-256 of the token, 32 bytes."""


def parse(text: str) -> tuple[list[Token], list[str]]:
    """The tokens of a file, and a problem for each line that is not valid: it admits nobody. Problems contain no part
    of a line, which may be a token that was pasted by mistake."""
    tokens: dict[bytes, Token] = {}
    problems: list[str] = []
    for number, line in enumerate(text.splitlines(), 1):
        words = line.partition("#")[0].split()
        if not words:
            continue
        token = _token(words)
        if isinstance(token, str):
            problems.append(f"line {number}: {token}")
        elif token.digest in tokens:
            problems.append(f"line {number}: expected a token of its own; found that of an earlier line, which applies")
        elif len(tokens) == MOST_TOKENS:
            problems.append(f"line {number}: expected at most {MOST_TOKENS} tokens; the rest of the file is ignored")
            break
        else:
            tokens[token.digest] = token
    return list(tokens.values()), problems


def _token(words: Sequence[str]) -> Token | str:
    """The token of a line, or what is wrong with the line."""
    if len(words) != 3:
        return f"expected NAME ROLE sha256:DIGEST; found {many(len(words), 'word')}"
    name, role, digest = words
    if not _NAME.fullmatch(name):
        return "expected a name of at most 64 letters, digits and . _ @ -; found another one"
    if role not in ROLES:
        return f"expected a role, one of {', '.join(ROLES)}; found something else"
    if not (match := _DIGEST.fullmatch(digest)):
        return "expected sha256: and 64 hexadecimal digits; found something else"
    return Token(name, ROLES[role], bytes.fromhex(match[1]))


def digest_of(token: str) -> bytes:
    """SHA-256 of a token."""
    return hashlib.sha256(token.encode("utf-8", "surrogatepass")).digest()


def line_of(name: str, role: Role, token: str) -> str:
    """The line of the file for a new token. Raises `ValueError` if the name is not valid."""
    parsed = _token([name, role.text, f"sha256:{digest_of(token).hex()}"])
    if isinstance(parsed, str):
        raise ValueError(parsed)
    return f"{name} {role.text} sha256:{parsed.digest.hex()}"


def find(tokens: Iterable[Token], digest: bytes) -> Token | None:
    """The token with this digest. The time does not depend on which token it is or how much of it matches."""
    match = None
    for token in tokens:
        if hmac.compare_digest(token.digest, digest):
            match = token
    return match
