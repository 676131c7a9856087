"""Sections oidc and proxy: callers that others know."""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from ipaddress import ip_address
from urllib.parse import urlsplit

from trueup.state.common.options import key, shown
from trueup.state.settings.section import Draft, Section
from trueup.state.settings.tokens import ROLES

OIDC_NAME = "oidc"
_HEADER = re.compile(r"[A-Za-z0-9-]{1,64}")
_ROLES = f"{', '.join(ROLES)}; * is every caller"


@dataclass(frozen=True, slots=True)
class OidcSettings:
    """Callers with a token of an OpenID Connect provider."""

    issuer: str = key("", "URL of the provider, as in the claim iss of its tokens. Empty: its tokens are not accepted")
    audience: str = key("", "The claim aud of tokens for Trueup")
    jwks: str = key("", "URL of the provider's keys; empty: from ISSUER/.well-known/openid-configuration")
    ca: str = key("system", "PEM file of the authorities of the provider's certificate, or system")
    name_claim: str = key("sub", "Claim with the name of the caller, for example preferred_username or email")
    roles_claim: str = key("groups", "Claim with groups or roles; names of nested objects with dots in between")
    roles: dict[str, str] = key(dict, f"Role of callers by value of roles_claim: one of {_ROLES}")


@dataclass(frozen=True, slots=True)
class ProxySettings:
    """Callers that a proxy has authenticated."""

    tokens: list[str] = key(
        list,
        "Names of tokens of http.tokens_file. A proxy that sends such a token names the caller in user_header; "
        "the role of the token bounds the role of the caller",
    )
    user_header: str = key("X-Forwarded-User", "Header with the name of the caller")
    groups_header: str = key(
        "",
        "Header with the groups of the caller, with commas in between; empty: all callers have the role of the token",
    )
    roles: dict[str, str] = key(dict, f"Role of callers by group: one of {_ROLES}")


def is_private(url: str) -> bool:
    """Whether a URL is https, or http on this machine."""
    try:
        parts = urlsplit(url)
    except ValueError:
        return False
    if parts.username or parts.fragment or not parts.hostname:
        return False
    return parts.scheme == "https" or (parts.scheme == "http" and is_loopback(parts.hostname))


def is_loopback(host: str) -> bool:
    """Whether only this machine can reach a listener on this address."""
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return host.lower() == "localhost"


def _check_oidc(draft: Draft) -> Iterator[str]:
    oidc = draft.section(OidcSettings)
    if oidc is None:
        return
    if not oidc.issuer:
        for name in ("audience", "jwks", "roles"):
            if getattr(oidc, name):
                yield f"oidc.issuer: expected the URL of the provider because oidc.{name} is set; found nothing"
        return
    for name, url in (("issuer", oidc.issuer), ("jwks", oidc.jwks)):
        if url and not is_private(url):
            yield f"oidc.{name}: expected an https URL (http only for this machine); found {shown(url)}"
    if not oidc.audience:
        yield "oidc.audience: expected the claim aud of tokens for Trueup; found nothing"
    if not oidc.roles:
        yield "oidc.roles: expected roles by value of roles_claim; found none, and no caller would have a role"
    yield from _roles("oidc", oidc.roles)


def _check_proxy(draft: Draft) -> Iterator[str]:
    proxy = draft.section(ProxySettings)
    if proxy is None:
        return
    for name in ("user_header", "groups_header"):
        if (header := getattr(proxy, name)) and not _HEADER.fullmatch(header):
            yield f"proxy.{name}: expected the name of a header, of letters, digits and -; found {shown(header)}"
    if proxy.tokens and not proxy.user_header:
        yield "proxy.user_header: expected the header with the name of the caller; found nothing"
    if OIDC_NAME in proxy.tokens:
        yield f"proxy.tokens: expected names other than {OIDC_NAME}, which marks callers of section oidc"
    if bool(proxy.groups_header) != bool(proxy.roles):
        yield "proxy.roles: expected roles and groups_header, or neither; found one of them"
    yield from _roles("proxy", proxy.roles)


def _roles(section: str, roles: Mapping[str, str]) -> Iterator[str]:
    for value, role in roles.items():
        if role not in ROLES:
            yield f"{section}.roles.{value}: expected one of {', '.join(ROLES)}; found {shown(role)}"


OIDC = Section("oidc", OidcSettings, check=_check_oidc)
PROXY = Section("proxy", ProxySettings, check=_check_proxy)
