"""A client of the object store of tests, in the role of a broker or an operator."""

from functools import cache
from typing import Any

import boto3

from trueup.sandbox.servers.objects import REGION


@cache
def client_of(endpoint: str) -> Any:
    """One for each server: it takes 20 ms to create. The server accepts any credentials."""
    return boto3.client(
        "s3", endpoint_url=endpoint, region_name=REGION, aws_access_key_id="x", aws_secret_access_key="y"
    )
