from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import urllib3

from trueup.sandbox.servers.objects import Objects

pytestmark = pytest.mark.servers


@pytest.fixture(scope="module")
def server(new_root: Callable[[], Path]) -> Iterator[Objects]:
    with Objects(new_root(), buckets=["bucket"]) as started:
        started.up()
        yield started


@pytest.mark.parametrize("signature", ["AbCdEf", "a/b/M9O9/p/c="])
def test_a_request_with_a_signature_of_version_2_is_one_to_s3(server: Objects, signature: str) -> None:
    signed = {"Authorization": f"AWS sandbox:{signature}"}
    assert urllib3.request("GET", f"{server.endpoint}/bucket", headers=signed, retries=False).status == 200
