"""Topics of Pulsar in bookies alone: the tests of another suite on a cluster without tiered storage."""

from collections.abc import Callable, Iterator
from pathlib import Path

import pulsar
import pytest

from tests.integration.topic_reader import conftest as shared
from tests.integration.topic_reader import test_topics as topics
from tests.integration.topic_reader.topics import (
    ALONE,
    COUNT,
    KINDS,
    NAMESPACE,
    PER_LEDGER,
    Seen,
    as_pulsar,
    confirmed,
    write,
)
from trueup.sandbox.forgetting import unload
from trueup.sandbox.pulsar import SandboxPulsar

pytestmark = [pytest.mark.servers, pytest.mark.timeout(600)]


@pytest.fixture(scope="package")
def cluster(shared_root: Callable[[], Path]) -> Iterator[SandboxPulsar]:
    settings = {"managedLedgerMaxEntriesPerLedger": PER_LEDGER, "maxMessageSize": shared.CHUNK}
    with SandboxPulsar(shared_root(), settings=settings) as made:
        made.up()
        yield made


@pytest.fixture(scope="package")
def keys(cluster: SandboxPulsar) -> dict[str, str]:
    return {"cluster.zookeeper": cluster.zookeeper.address}


@pytest.fixture(scope="package")
def written(cluster: SandboxPulsar, client: pulsar.Client) -> dict[str, list[Seen]]:
    for name, options in KINDS.items():
        write(client, name, range(COUNT if name != "chunked" else 12), **options)
        unload(cluster, f"{NAMESPACE}/{name}")
        write(client, name, range(1_000, 1_003), **ALONE)
    return {name: confirmed(as_pulsar(client, name)) for name in KINDS}


client, data, spark = shared.client, shared.data, shared.spark
load, trueup, start = shared.load, shared.trueup, shared.start

test_messages_from_bookies_equal_those_of_pulsars_reader = (
    topics.test_messages_from_bookies_equal_those_of_pulsars_reader
)
test_an_encrypted_message_is_marked = topics.test_an_encrypted_message_is_marked
test_a_range_of_message_ids_is_read = topics.test_a_range_of_message_ids_is_read
test_a_range_of_publish_times_is_read = topics.test_a_range_of_publish_times_is_read
test_a_partitioned_topic_is_read_partition_by_partition = topics.test_a_partitioned_topic_is_read_partition_by_partition
test_a_reader_does_not_fence_the_open_ledger = topics.test_a_reader_does_not_fence_the_open_ledger
test_a_topic_that_does_not_exist_is_refused = topics.test_a_topic_that_does_not_exist_is_refused
test_entries_that_no_tier_has_are_an_error_or_are_skipped = (
    topics.test_entries_that_no_tier_has_are_an_error_or_are_skipped
)
test_the_other_bookie_goes_on_when_one_is_killed_during_a_read = (
    topics.test_the_other_bookie_goes_on_when_one_is_killed_during_a_read
)
