"""Callers that others have authenticated: an OpenID Connect provider (section oidc), or a proxy (section proxy).

Their names contain a colon, which no name of a token does: ``oidc:NAME``, and ``TOKEN:NAME`` with the name of the token
of the proxy.
"""

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from werkzeug.datastructures import Headers

from trueup.connectors.oidc import Issuer
from trueup.state.common.errors import Refused
from trueup.state.settings.callers import OIDC_NAME, OidcSettings, ProxySettings
from trueup.state.settings.claims import MOST_VALUES, name_of, role_of, values_of
from trueup.state.settings.roles import LONGEST_JWT, Role
from trueup.state.settings.tokens import Token
from trueup.streams.runtime.headers import REPEATED

_DOTS = 2


@dataclass(frozen=True, slots=True)
class Caller:
    """The sender of a request."""

    name: str
    role: Role | None
    """The role of the sender; None if the settings give the sender no role."""


def is_jwt(token: str) -> bool:
    """Whether a token has the form of a provider's."""
    return token.count(".") == _DOTS


class Provider:
    """Callers with a token of the provider. ``clock``: a function that returns the time in seconds since the epoch, the
    unit of the times in tokens."""

    def __init__(self, settings: OidcSettings, issuer: Issuer, clock: Callable[[], float] = time.time) -> None:
        self._settings, self._issuer, self._clock = settings, issuer, clock

    @property
    def problems(self) -> list[str]:
        """Why the provider's keys could not be read."""
        return [self._issuer.problem] if self._issuer.problem else []

    def caller(self, token: str) -> tuple[Caller, float]:
        """The caller, and for how many seconds the token is valid. Raises `Refused`."""
        if len(token) > LONGEST_JWT:
            raise Refused(
                "a valid token", f"one of more than {LONGEST_JWT} characters", "use a token with fewer claims"
            )
        claims = self._issuer.claims(token)
        name = name_of(claims.get(self._settings.name_claim))
        if not name:
            raise Refused(
                f"a token with a name in the claim {self._settings.name_claim}", "none", "correct oidc.name_claim"
            )
        role = role_of(values_of(claims, self._settings.roles_claim), self._settings.roles)
        return Caller(f"{OIDC_NAME}:{name}", role), max(0.0, float(claims["exp"]) - self._clock())


class Proxies:
    """Callers whom a proxy names, which itself sends a token of the file."""

    def __init__(self, settings: ProxySettings) -> None:
        self._settings = settings

    def is_one(self, token: Token) -> bool:
        """Whether this is the token of a proxy."""
        return token.name in self._settings.tokens

    def caller(self, token: Token, headers: Headers | Mapping[str, str]) -> Caller:
        """The caller. The server joins repeated headers with commas: one that a client added cannot be told from the
        proxy's own. Raises `Refused`."""
        for header in (self._settings.user_header, self._settings.groups_header):
            if header and header.lower() in headers.get(REPEATED, "").split(","):
                raise Refused(
                    f"one header {header} of the proxy {token.name}",
                    "several",
                    "let the proxy set this header, and remove those of its clients",
                )
        name = name_of(headers.get(self._settings.user_header, ""))
        if not name:
            raise Refused(
                f"one name in the header {self._settings.user_header} of the proxy {token.name}",
                "none or several",
                "let the proxy set this header, and remove those of its clients",
            )
        return Caller(f"{token.name}:{name}", self._role(token, headers))

    def _role(self, token: Token, headers: Headers | Mapping[str, str]) -> Role | None:
        if not self._settings.groups_header:
            return token.role
        groups = headers.get(self._settings.groups_header, "").split(",", MOST_VALUES)
        role = role_of([group.strip() for group in groups], self._settings.roles)
        return None if role is None else min(role, token.role)
