"""Secrets in settings: as they are, or by reference.

A reference is resolved where a client is created, so that a lease, a plan or a record contains none of the secrets.
"""

from collections.abc import Iterator, Mapping, Sequence

SOURCES = (".env", ".file")
"""Where a secret is: in an environment variable, or in a file."""


def forms(secret: str) -> tuple[str, ...]:
    """The keys that can give a secret."""
    return (secret, *(secret + source for source in SOURCES))


def keys_of(secrets: Sequence[str]) -> tuple[str, ...]:
    """The keys of all references to these secrets."""
    return tuple(secret + source for secret in secrets for source in SOURCES)


def is_reference(key: str) -> bool:
    """Whether the value of this key is a reference."""
    return key.endswith(SOURCES)


def is_given(secret: str, options: Mapping[str, str]) -> bool:
    """Whether a key gives a secret."""
    return any(options.get(name) for name in forms(secret))


def login(kind: str, options: Mapping[str, str]) -> Iterator[str]:
    """One line for each that is missing of ``kind``.username and ``kind``.password."""
    if not options.get(f"{kind}.username"):
        yield f"{kind}.username: expected the name of the user; found nothing"
    if not is_given(f"{kind}.password", options):
        yield f"{kind}.password: expected a password, or {kind}.password.file or {kind}.password.env; found none"


def repeated(secrets: Sequence[str], options: Mapping[str, str]) -> Iterator[str]:
    """One line for each secret that several keys give."""
    for secret in secrets:
        if len(given := [name for name in forms(secret) if name in options]) > 1:
            yield f"{secret}: expected one of {', '.join(given)}; found several"
