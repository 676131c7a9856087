"""Callers with tokens of an OpenID Connect provider: what is accepted, and every way to forge one."""

import base64
import hashlib
import hmac
import json
import time
from collections.abc import Iterator
from typing import Any

import jwt
import pytest
from cryptography.hazmat.primitives.asymmetric import rsa
from flask.testing import FlaskClient

from tests.issuer import AUDIENCE, Issuer
from tests.unit.cli.fake_engine import FakeEngine
from trueup.connectors import oidc
from trueup.state.common.errors import Refused
from trueup.state.settings.callers import OidcSettings
from trueup.state.settings.roles import LONGEST_JWT
from trueup.streams.catalog import all_metrics
from trueup.streams.web.access import Access
from trueup.streams.web.api import create_app
from trueup.streams.web.others import Provider

ROLES = {"operators": "admin", "readers": "viewer"}


class Clock:
    now_s = 0.0

    def __call__(self) -> float:
        return self.now_s


@pytest.fixture
def issuer() -> Iterator[Issuer]:
    with Issuer() as made:
        yield made


@pytest.fixture
def settings(issuer: Issuer) -> OidcSettings:
    return OidcSettings(issuer=issuer.url, audience=AUDIENCE, roles=ROLES)


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def keys(settings: OidcSettings, clock: Clock) -> oidc.Issuer:
    return oidc.Issuer(settings, clock)


@pytest.fixture
def client(settings: OidcSettings, keys: oidc.Issuer, clock: Clock) -> FlaskClient:
    access = Access(None, lambda _: None, clock, provider=Provider(settings, keys))
    return create_app(FakeEngine(), all_metrics(), access).test_client()


def status(client: FlaskClient, token: str, route: str = "/api/status") -> int:
    return client.get(route, headers={"Authorization": f"Bearer {token}"}).status_code


def refusal(keys: oidc.Issuer, token: str) -> str:
    with pytest.raises(Refused) as caught:
        keys.claims(token)
    return caught.value.found


def unsigned(header: dict[str, Any], claims: dict[str, Any], signature: bytes = b"") -> str:
    parts = (json.dumps(header).encode(), json.dumps(claims).encode(), signature)
    return ".".join(base64.urlsafe_b64encode(part).rstrip(b"=").decode() for part in parts)


@pytest.mark.parametrize(("kid", "algorithm"), [("one", "RS256"), ("one", "PS512"), ("two", "ES256")])
def test_a_signed_token_is_accepted(kid: str, algorithm: str, issuer: Issuer, keys: oidc.Issuer) -> None:
    assert keys.claims(issuer.token(kid, algorithm))["sub"] == "ada"


@pytest.mark.parametrize(
    ("changed", "found"),
    [
        ({"aud": "another"}, "for another audience"),
        ({"aud": None}, "without exp, iss or aud"),
        ({"iss": "https://another.example"}, "of another issuer"),
        ({"exp": 1}, "that has expired"),
        ({"exp": None}, "without exp, iss or aud"),
        ({"nbf": 1 << 33}, "not valid yet"),
        ({"exp": "soon"}, "another one"),
        ({"exp": float("inf")}, "another one"),
    ],
)
def test_a_token_with_other_claims_is_refused(
    changed: dict[str, Any], found: str, issuer: Issuer, keys: oidc.Issuer
) -> None:
    assert found in refusal(keys, issuer.token(**changed))


def test_a_token_without_a_signature_is_refused(issuer: Issuer, keys: oidc.Issuer) -> None:
    assert refusal(keys, unsigned({"alg": "none", "kid": "one"}, issuer.claims())) == "another one"


def test_the_public_key_is_no_secret_to_sign_with(issuer: Issuer, keys: oidc.Issuer) -> None:
    head = unsigned({"alg": "HS256", "kid": "one"}, issuer.claims()).rpartition(".")[0]
    signature = hmac.new(issuer.public(), head.encode(), hashlib.sha256).digest()
    forged = f"{head}.{base64.urlsafe_b64encode(signature).rstrip(b'=').decode()}"
    assert refusal(keys, forged) == "another one"


def test_a_token_of_another_key_is_refused(issuer: Issuer, keys: oidc.Issuer) -> None:
    other = rsa.generate_private_key(65_537, 2_048)
    assert refusal(keys, jwt.encode(issuer.claims(), other, "RS256", headers={"kid": "one"})) == (
        "one with a wrong signature"
    )


@pytest.mark.parametrize("token", ["..", "a.b.c", "a.b.c.d", f"{'x' * 100}.y.z"])
def test_what_is_no_token_is_refused(token: str, keys: oidc.Issuer) -> None:
    assert refusal(keys, token)


def test_a_key_for_encryption_and_a_secret_are_not_used(issuer: Issuer) -> None:
    assert [oidc.usable(issuer.jwk("k", use="enc")), oidc.usable({"kty": "oct", "k": "c2VjcmV0"})] == [None, None]


def test_a_short_key_is_not_used() -> None:
    short = rsa.generate_private_key(65_537, 1_024)
    published = jwt.algorithms.RSAAlgorithm.to_jwk(short.public_key(), as_dict=True)
    assert oidc.usable(published) is None


def test_a_new_key_is_found_but_not_asked_for_more_often_than_allowed(
    issuer: Issuer, keys: oidc.Issuer, clock: Clock
) -> None:
    keys.claims(issuer.token())
    for number in range(5):
        refusal(keys, issuer.token(f"unknown-{number}"))
    asked = len(issuer.asked)
    issuer.answers["/keys"] = {"keys": [issuer.jwk("new")]}
    clock.now_s += oidc.AGAIN_S
    assert (asked, keys.claims(issuer.token("new"))["sub"]) == (2, "ada")


def test_known_keys_remain_valid_while_the_provider_is_down(issuer: Issuer, keys: oidc.Issuer, clock: Clock) -> None:
    keys.claims(issuer.token())
    issuer.answers.clear()
    clock.now_s += 2 * oidc.REFRESH_S
    assert keys.claims(issuer.token())["sub"] == "ada"
    assert "status 404" in keys.problem


@pytest.mark.parametrize(
    ("path", "answer", "found"),
    [
        ("/keys", b" " * (oidc.LARGEST_ANSWER + 1), "found more"),
        ("/keys", b"[" * 100_000, "JSON object"),
        ("/keys", {"keys": []}, "a key that can verify"),
        ("/keys", {"keys": "none"}, "keys at"),
        ("/keys", {"keys": [{"kty": "RSA", "n": "AQAB"}, 7, None]}, "a key that can verify"),
        ("/.well-known/openid-configuration", {"issuer": "https://evil.example"}, "evil.example"),
        ("/.well-known/openid-configuration", {"issuer": "ISSUER", "jwks_uri": "http://192.0.2.1/"}, "https URL"),
    ],
)
def test_an_answer_that_is_not_valid_is_a_problem(
    path: str, answer: Any, found: str, issuer: Issuer, keys: oidc.Issuer
) -> None:
    if isinstance(answer, dict) and answer.get("issuer") == "ISSUER":
        answer = {**answer, "issuer": issuer.url}
    issuer.answers[path] = answer
    refusal(keys, issuer.token())
    assert found in keys.problem


def test_a_group_gives_the_highest_of_its_roles(client: FlaskClient, issuer: Issuer) -> None:
    token = issuer.token(groups=["readers", "operators"])
    assert client.put("/api/config/x", json={}, headers={"Authorization": f"Bearer {token}"}).status_code == 404


def test_a_viewer_changes_nothing(client: FlaskClient, issuer: Issuer) -> None:
    token = issuer.token(groups=["readers"])
    put = client.put("/api/config/x", json={}, headers={"Authorization": f"Bearer {token}"}).status_code
    assert (status(client, token), put) == (200, 403)


def test_a_caller_without_a_group_has_no_role(client: FlaskClient, issuer: Issuer) -> None:
    assert [status(client, issuer.token(groups=groups)) for groups in (None, [], ["others"], 7)] == [403] * 4


def test_a_caller_without_a_group_gets_no_session(client: FlaskClient, issuer: Issuer) -> None:
    begun = client.post("/login", json={"token": issuer.token(groups=["others"])})
    assert (begun.status_code, client.get("/api/status").status_code) == (401, 401)


def test_a_caller_without_a_group_does_not_learn_why_the_application_is_not_ready(
    client: FlaskClient, issuer: Issuer
) -> None:
    answers = [
        client.get("/readyz", headers={"Authorization": f"Bearer {issuer.token(groups=groups)}"}).json["reasons"]
        for groups in (["others"], ["readers"])
    ]
    assert answers[0] == []


@pytest.mark.parametrize("name", [None, "", "a b", "a,b", "x" * 129, "a\nb", 7])
def test_a_name_that_cannot_be_shown_is_refused(name: object, issuer: Issuer, keys: oidc.Issuer) -> None:
    provider = Provider(OidcSettings(name_claim="email", roles=ROLES), keys)
    with pytest.raises(Refused, match="claim email"):
        provider.caller(issuer.token(email=name))


def test_a_token_that_is_too_long_is_not_read(issuer: Issuer, keys: oidc.Issuer, settings: OidcSettings) -> None:
    with pytest.raises(Refused, match="characters"):
        Provider(settings, keys).caller(issuer.token(filler="x" * LONGEST_JWT))


def test_a_session_ends_with_its_token(client: FlaskClient, issuer: Issuer, clock: Clock) -> None:
    token = issuer.token(exp=int(time.time()) + 100)
    assert client.post("/login", json={"token": token}).status_code == 200
    first = client.get("/api/status").status_code
    clock.now_s += 101
    assert (first, client.get("/api/status").status_code) == (200, 401)
