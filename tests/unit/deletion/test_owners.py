"""The owner of a ledger by its custom metadata, as written by Pulsar 4.2.4 (LedgerMetadataUtils)."""

import pytest

from trueup.state.deletion.owners import NO_CLAIM, SCHEMA, Claim, Component, claim_of, managed_ledger

PULSAR = {"application": b"pulsar"}
OF_TOPIC = PULSAR | {"component": b"managed-ledger", "pulsar/managed-ledger": b"t/ns/persistent/a%3Ab"}
OF_BUCKET = PULSAR | {
    "component": b"delayed-index-bucket",
    "pulsar/delayedIndexBucketKey": b"#pulsar.internal.delayed.bucket_5_7",
}


@pytest.mark.parametrize(
    ("custom", "claim"),
    [
        (OF_TOPIC, Claim(Component.DATA, "t/ns/persistent/a%3Ab")),
        (OF_TOPIC | {"EnsemblePlacementPolicyConfig": b"{}"}, Claim(Component.DATA, "t/ns/persistent/a%3Ab")),
        (OF_TOPIC | {"pulsar/cursor": b""}, Claim(Component.CURSOR, "t/ns/persistent/a%3Ab")),
        (OF_TOPIC | {"pulsar/cursor": b"sub%2Fx"}, Claim(Component.CURSOR, "t/ns/persistent/a%3Ab", "sub%2Fx")),
        (
            PULSAR
            | {"component": b"compacted-ledger", "pulsar/compactedTopic": b"persistent://t/ns/a:b"}
            | {"pulsar/compactedTo": b"\x08\xff"},
            Claim(Component.COMPACTED, "t/ns/persistent/a%3Ab"),
        ),
        (PULSAR | {"component": b"schema", "pulsar/schemaId": b"t/ns/a"}, Claim(Component.SCHEMA, f"{SCHEMA}t/ns/a")),
        (
            OF_BUCKET | {"pulsar/delayedIndexTopic": b"persistent://t/ns/a", "pulsar/delayedIndexCursor": b"s/x"},
            Claim(Component.DELAYED, "t/ns/persistent/a", "s%2Fx"),
        ),
        (OF_BUCKET, Claim(Component.DELAYED)),
    ],
)
def test_pulsar_names_the_owner_of_its_ledgers(custom: dict[str, bytes], claim: Claim) -> None:
    assert claim_of(custom) == claim


@pytest.mark.parametrize(
    "custom",
    [
        {},
        {"application": b"bookiesanity"},
        {name: value for name, value in OF_TOPIC.items() if name != "application"},
        {name: value for name, value in OF_TOPIC.items() if name != "pulsar/managed-ledger"},
        OF_TOPIC | {"component": b"something-new"},
        OF_TOPIC | {"pulsar/compactedTopic": b""},
        OF_TOPIC | {"pulsar/schemaId": b"t/ns/a"},
        OF_TOPIC | {"pulsar/managed-ledger": b"\xff"},
        OF_TOPIC | {"pulsar/managed-ledger": b"x" * 200_000},
        PULSAR | {"component": b"schema"},
    ],
)
def test_uncertain_metadata_have_no_owner(custom: dict[str, bytes]) -> None:
    assert claim_of(custom) == NO_CLAIM


@pytest.mark.parametrize(
    ("topic", "owner"),
    [
        ("persistent://t/ns/a", "t/ns/persistent/a"),
        ("persistent://t/ns/ö b~*-_.", "t/ns/persistent/%C3%B6+b%7E*-_."),
        ("persistent://t/cluster/ns/a/b", "t/cluster/ns/persistent/a%2Fb"),
        ("segment://t/ns/a:b/0000-7fff-1", "t/ns/segment/a%3Ab/0000-7fff-1"),
        ("no topic", "no topic"),
    ],
)
def test_managed_ledgers_are_named_after_their_topics(topic: str, owner: str) -> None:
    assert managed_ledger(topic) == owner
