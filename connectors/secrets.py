"""Secrets of settings that are references to this process's environment and files."""

import os
from collections.abc import Mapping, Sequence
from pathlib import Path

from trueup.state.common.errors import BadSettings
from trueup.state.common.secrets import is_reference

_LARGEST = 10_000


def resolved(options: Mapping[str, str], secrets: Sequence[str], path: str) -> dict[str, str]:
    """The options with their secrets in place of references. ``secrets``: the keys that can be references; ``path``:
    the path of the options in the settings, for messages. Raises `BadSettings`."""
    values = {key: value for key, value in options.items() if not is_reference(key)}
    missing = []
    for secret in secrets:
        if variable := options.get(f"{secret}.env"):
            values[secret] = os.environ.get(variable, "")
            if not values[secret]:
                missing.append(f"{path}.{secret}.env: expected the variable {variable}; found none")
        elif place := options.get(f"{secret}.file"):
            try:
                values[secret] = read(place, _LARGEST).rstrip("\r\n")
            except (OSError, ValueError) as error:
                missing.append(f"{path}.{secret}.file: expected a readable text file; found: {error}")
        if any(ord(sign) < ord(" ") for sign in values.get(secret, "")):
            missing.append(f"{path}.{secret}: expected no control characters; found some")
    if missing:
        raise BadSettings(missing)
    return values


def read(place: str, most: int) -> str:
    """The text of a file of at most ``most`` bytes. Raises `OSError`, `ValueError`."""
    with Path(place).open("rb") as file:
        content = file.read(most + 1)
    if len(content) > most:
        raise ValueError(f"more than {most} bytes")
    return content.decode()
