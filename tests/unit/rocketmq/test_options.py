import pytest

from trueup.connectors.contract import Endpoint
from trueup.connectors.rocketmq.client.options import access_of, addresses_of, problems
from trueup.state.common.errors import BadSettings


def endpoint(address: str = "n1:9876;n2:9876", **options: str) -> Endpoint:
    return Endpoint("east", address, 0, {name.replace("_", "."): value for name, value in options.items()})


def test_name_servers_are_separated_by_semicolons() -> None:
    assert addresses_of(endpoint("n1:9876; [::1]:9877")) == ["n1:9876", "[::1]:9877"]


def test_commas_are_accepted_too() -> None:
    assert addresses_of(endpoint("n1:9876,n2:9876")) == ["n1:9876", "n2:9876"]


def test_every_problem_is_listed() -> None:
    found = problems(endpoint("n1", access_key="a", timeout_ms="soon", secret="x"))
    assert [line.split(":")[0] for line in found] == [
        "rocketmq.east.secret",
        "rocketmq.east",
        "rocketmq.east.timeout.ms",
        "rocketmq.east.namesrv",
    ]


def test_options_with_a_problem_are_refused() -> None:
    with pytest.raises(BadSettings):
        access_of(endpoint(secret_key="x"))


def test_options_become_credentials_tls_and_time_out() -> None:
    found = access_of(endpoint(access_key="a", secret_key="b", tls_ca="system", timeout_ms="1500"))
    assert found.signer is not None
    assert (found.signer.access_key, found.tls is not None, found.timeout_s) == ("a", True, 1.5)


def test_without_options_nothing_is_signed_or_encrypted() -> None:
    found = access_of(endpoint())
    assert (found.signer, found.tls) == (None, None)
