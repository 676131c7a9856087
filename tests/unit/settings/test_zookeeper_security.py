"""Section cluster.security: what is refused, with the key."""

from pathlib import Path

import pytest
from kazoo.security import ACL, CREATOR_ALL_ACL, Id, Permissions

from trueup.connectors.zookeeper.security import options_of, shared
from trueup.state.common.errors import BadSettings
from trueup.state.settings.zookeeper_security import has_identity, problems

SASL = {"sasl.mechanism": "DIGEST-MD5", "sasl.username": "u", "sasl.password": "p"}
TLS = {"tls.ca": "/ca.pem", "tls.certificate": "/c.pem", "tls.key": "/k.pem"}


@pytest.mark.parametrize("security", [{}, SASL, TLS, {"digest.username": "u", "digest.password.env": "E"}])
def test_good_settings_have_no_problem(security: dict[str, str]) -> None:
    assert list(problems(security, {})) == []


@pytest.mark.parametrize(
    ("security", "auth", "key"),
    [
        ({"tls.cert": "x"}, {}, "tls.cert"),
        ({"sasl.mechanism": "GSSAPI", "sasl.username": "u", "sasl.password": "p"}, {}, "sasl.mechanism"),
        ({"sasl.username": "u", "sasl.password": "p"}, {}, "sasl.mechanism"),
        ({"sasl.mechanism": "DIGEST-MD5", "sasl.password": "p"}, {}, "sasl.username"),
        ({"sasl.mechanism": "DIGEST-MD5", "sasl.username": "u"}, {}, "sasl.password"),
        ({**SASL, "sasl.password.file": "/p"}, {}, "sasl.password"),
        ({"digest.username": "u"}, {}, "digest.password"),
        ({"digest.password": "p"}, {}, "digest.username"),
        ({"digest.username": "u", "digest.password": "p"}, {"digest": "u:p"}, "digest.username"),
        ({"tls.certificate": "/c.pem"}, {}, "tls.key"),
        ({"tls.key.password": "p"}, {}, "tls.key.password"),
        ({"tls.check.host": "no"}, {}, "tls.check.host"),
    ],
)
def test_a_problem_names_its_key(security: dict[str, str], auth: dict[str, str], key: str) -> None:
    (problem,) = problems(security, auth)
    assert problem.startswith(f"{key}: expected")


def test_secrets_are_read_where_a_client_is_made(tmp_path: Path) -> None:
    (tmp_path / "p").write_text("from file\n")
    found = options_of({"digest.username": "u", "digest.password.file": str(tmp_path / "p")}, {})
    assert found["auth_data"] == [("digest", "u:from file")]


def test_a_missing_certificate_names_its_section() -> None:
    with pytest.raises(BadSettings, match=r"cluster\.security\.tls"):
        options_of(TLS, {})


@pytest.mark.parametrize(
    ("security", "auth", "known"),
    [
        ({}, {}, False),
        ({"tls.ca": "system"}, {}, False),
        (TLS, {}, True),
        (SASL, {}, True),
        ({}, {"digest": "a:b"}, True),
    ],
)
def test_a_certificate_or_a_user_is_an_identity(security: dict[str, str], auth: dict[str, str], known: bool) -> None:
    assert has_identity(security, auth) is known


def test_others_keep_their_permissions_but_not_that_to_change_them() -> None:
    tree = [ACL(Permissions.ALL, Id("sasl", "bookkeeper")), ACL(Permissions.ADMIN, Id("ip", "127.0.0.1"))]
    kept = Permissions.ALL & ~Permissions.ADMIN
    assert shared(tree) == [*CREATOR_ALL_ACL, ACL(kept, Id("sasl", "bookkeeper"))]
