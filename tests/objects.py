"""A client of the object store of tests, in the role of a broker or an operator."""

from typing import Any

import boto3

from trueup.connectors.sandbox.servers.objects import REGION


def client_of(endpoint: str) -> Any:
    """The server accepts any credentials."""
    return boto3.client(
        "s3", endpoint_url=endpoint, region_name=REGION, aws_access_key_id="x", aws_secret_access_key="y"
    )
