"""The section ``stores`` of the settings: buckets to which Pulsar's brokers offload ledgers."""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from trueup.state.common.options import YEAR_S, key, shown
from trueup.state.settings.section import Draft, Section

_BUCKET, _ENDPOINT = re.compile(r"[A-Za-z0-9][\w.-]{1,61}[A-Za-z0-9]"), re.compile(r"https?://[^\s/?#@]+/?")


@dataclass(frozen=True, slots=True)
class StoreSettings:
    """A bucket to which Pulsar's brokers offload ledgers, on S3 or on a service with an S3 API."""

    bucket: str = key(doc="Name of the bucket, as in managedLedgerOffloadBucket")
    region: str = key("", "Region of the bucket; empty: the region of the AWS configuration files")
    endpoint: str = key("", "http(s)://host[:port], as in managedLedgerOffloadServiceEndpoint; empty: AWS")
    key_env: str = key("", "Environment variable that contains the access key; empty: AWS's credential chain")
    secret_env: str = key("", "Environment variable that contains the secret key")
    ca: str = key("", "PEM file of the authorities of the endpoint's certificate; empty: those of AWS's tools")
    cluster: str = key(
        "",
        "clusterName of the only Pulsar cluster that offloads to this bucket; empty: orphan objects are never deleted",
    )
    list_s: float = key(
        3_600.0, "Interval in seconds at which the bucket is listed to find orphan objects", least=1, most=YEAR_S
    )


def check(draft: Draft) -> Iterator[str]:
    """The problems of the stores: key, expected, found. Addresses are not shown, as they can contain a secret."""
    buckets: dict[tuple[str, str], str] = {}
    for name, store in _valid(draft):
        where = f"stores.{name}"
        if not _BUCKET.fullmatch(store.bucket):
            expected = "the name of a bucket, 3 to 63 letters, digits, dots, dashes"
            yield f"{where}.bucket: expected {expected}; found {shown(store.bucket)}"
        if store.endpoint and not _ENDPOINT.fullmatch(store.endpoint):
            yield f"{where}.endpoint: expected http(s)://host[:port], without path or user; found something else"
        if store.ca and not store.endpoint.startswith("https://"):
            yield f"{where}.ca: expected an endpoint with https; found {'another' if store.endpoint else 'none'}"
        if bool(store.key_env) != bool(store.secret_env):
            given, other = ("key_env", "secret_env") if store.key_env else ("secret_env", "key_env")
            yield f"{where}.{other}: expected the name of a variable because {given} is set; found nothing"
        before = buckets.setdefault((store.bucket, store.endpoint.rstrip("/")), name)
        if before != name:
            yield f"{where}: expected another bucket or endpoint than stores.{before}; found the same"


def _valid(draft: Draft) -> Iterator[tuple[str, StoreSettings]]:
    return ((name, store) for name, store in draft.table(StoreSettings).items() if store)


def check_env(draft: Draft, env: Mapping[str, str]) -> Iterator[str]:
    """A problem for each variable that a store names and that is not set."""
    for name, store in _valid(draft):
        for leaf, variable in (("key_env", store.key_env), ("secret_env", store.secret_env)):
            if variable and variable not in env:
                yield f"stores.{name}.{leaf}: expected a variable that is set; found {shown(variable)} unset"


STORES = Section(
    "stores",
    StoreSettings,
    entries=("archive",),
    examples={"bucket": "pulsar-offloaded"},
    check=check,
    check_env=check_env,
)
