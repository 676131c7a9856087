"""The section ``stores`` of the settings."""

from typing import Any

import pytest

from tests.configuration import parse
from trueup.state.common.errors import BadSettings
from trueup.state.deletion.stores import StoreSettings

ZOOKEEPER = {"cluster": {"zookeeper": "z:1"}}
GOOD = {"bucket": "offloaded"}


def problems(**stores: Any) -> list[str]:
    with pytest.raises(BadSettings) as found:
        parse({**ZOOKEEPER, "stores": stores})
    return list(found.value.problems)


def test_a_store_needs_only_its_bucket() -> None:
    assert parse({**ZOOKEEPER, "stores": {"archive": GOOD}}).table(StoreSettings) == {
        "archive": StoreSettings("offloaded")
    }


def test_one_name_at_two_endpoints_is_two_buckets() -> None:
    both = {"a": {**GOOD, "endpoint": "http://a:1"}, "b": {**GOOD, "endpoint": "https://b"}}
    assert len(parse({**ZOOKEEPER, "stores": both}).table(StoreSettings)) == 2


@pytest.mark.parametrize(
    ("store", "problem"),
    [
        ({}, "stores.a.bucket: expected a value (Name of the bucket"),
        (
            {"bucket": "a/b"},
            "stores.a.bucket: expected the name of a bucket, 3 to 63 letters, digits, dots, dashes; found",
        ),
        ({**GOOD, "endpoint": "s3.local:9000"}, "stores.a.endpoint: expected http(s)://host[:port]"),
        ({**GOOD, "endpoint": "http://u:secret@host"}, "stores.a.endpoint: expected http(s)://host[:port]"),
        ({**GOOD, "key_env": "KEY"}, "stores.a.secret_env: expected the name of a variable because key_env is set"),
        ({**GOOD, "secret_env": "KEY"}, "stores.a.key_env: expected the name of a variable because secret_env is set"),
        ({**GOOD, "secret": "x"}, "stores.a.secret: expected a known key"),
    ],
)
def test_problems_are_reported_with_their_key(store: dict[str, Any], problem: str) -> None:
    (reported,) = problems(a=store)
    assert (reported.startswith(problem), "u:secret" in reported) == (True, False), reported


def test_all_problems_are_reported_at_once() -> None:
    reported = problems(a={"bucket": "x", "endpoint": "y"}, b={**GOOD, "key_env": "K"}, c=GOOD, d=GOOD)
    assert [line.partition(":")[0] for line in reported] == [
        "stores.a.bucket",
        "stores.a.endpoint",
        "stores.b.secret_env",
        "stores.c",
        "stores.d",
    ]
