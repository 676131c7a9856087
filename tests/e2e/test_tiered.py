"""Offloaded ledgers in the application, end to end: a Pulsar with an object store that forgets ledgers marked as
deleted, `trueup run`, and copies that are complete, truncated or missing."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.e2e.test_deletion import confirmed, found, owner, standing, topic
from tests.e2e.trueup import Trueup, Witness
from tests.objects import client_of
from trueup.sandbox.demo.leak import instance
from trueup.sandbox.forgetting import drop_offloaded, forget
from trueup.sandbox.messages import MessageClient
from trueup.sandbox.pulsar import BUCKET, NAME, SandboxPulsar
from trueup.sandbox.servers.objects import REGION

pytestmark = [pytest.mark.servers, pytest.mark.release, pytest.mark.timeout(900)]
PER_LEDGER, COUNT = 120, 241
BLOCKS = ("blocks", 100_000)
"""A topic whose ledgers need more than one block, and its message size."""
SECRET = "e2e-secret-key"
FOREIGN_UID, ENDS = "00000000-0000-4000-8000-000000000000", ("", "-index")


@pytest.fixture(scope="module")
def cluster(new_root: Callable[[], Path]) -> Iterator[SandboxPulsar]:
    with SandboxPulsar(new_root(), settings={"managedLedgerMaxEntriesPerLedger": PER_LEDGER}, tiered=True) as made:
        made.up()
        yield made


@pytest.fixture(scope="module")
def lost(cluster: SandboxPulsar, messages: MessageClient) -> dict[str, list[int]]:
    """Ledgers by topic that are offloaded and marked as deleted in BookKeeper, but exist there."""
    for name, size in (BLOCKS, ("small", 1_000), ("broken", 1_000)):
        messages.write(topic(name), range(COUNT), size)
    names = [topic(name) for name in (BLOCKS[0], "small", "broken")]
    return {name.rpartition("/")[2]: ledgers for name, ledgers in forget(cluster, names, drop_offloaded).items()}


@pytest.fixture(scope="module")
def client(cluster: SandboxPulsar) -> Any:
    """A client of the object store, as an operator uses it."""
    return client_of(cluster.objects.endpoint)


@pytest.fixture(scope="module")
def trueup(cluster: SandboxPulsar, lost: dict[str, list[int]], new_root: Callable[[], Path]) -> Iterator[Trueup]:
    assert lost
    deletion = {
        "owners": "pulsar",
        "instance": instance(str(cluster.zookeeper.address)),
        "exclusive": True,
        "grace_s": 2.0,
        "confirm_s": 0.5,
        "retry_s": 1.0,
    }
    store = {
        "bucket": BUCKET,
        "region": REGION,
        "endpoint": cluster.objects.endpoint,
        "key_env": "E2E_KEY",
        "secret_env": "E2E_SECRET",
        "cluster": NAME,
        "list_s": 1.0,
    }
    with pytest.MonkeyPatch.context() as environment:
        environment.setenv("E2E_KEY", "e2e-key-id")
        environment.setenv("E2E_SECRET", SECRET)
        with Trueup(cluster, new_root(), deletion=deletion, stores={"archive": store}) as made:
            made.start()
            yield made


def blocked(trueup: Trueup, ledger: int) -> str | None:
    """The reason why a deletion is blocked."""
    rows = [row for row in trueup.api("deletions") if row["ledger"] == ledger and row["stage"] == "blocked"]
    return rows[0]["detail"] if rows else None


def key_of(client: Any, ledger: int) -> str:
    """Key of the data object of a ledger."""
    listing = client.list_objects_v2(Bucket=BUCKET)["Contents"]
    (key,) = (found["Key"] for found in listing if found["Key"].endswith(f"-ledger-{ledger}"))
    return str(key)


def test_what_is_counted_as_deleted_is_found_for_that_reason(trueup: Trueup, lost: dict[str, list[int]]) -> None:
    ledgers = [ledger for some in lost.values() for ledger in some]
    rows = trueup.until("it to be found", lambda: found(trueup, ledgers))
    assert {(row["rule"], row["owner"]) for row in rows.values()} == {
        ("deletion.dropped", owner(name)) for name in lost
    }


def test_ledgers_go_whose_copies_are_whole_and_others_are_blocked_until_theirs_are(
    trueup: Trueup,
    cluster: SandboxPulsar,
    messages: MessageClient,
    lost: dict[str, list[int]],
    client: Any,
    witness: Witness,
) -> None:
    cut, gone = lost["broken"]
    kept = {ledger: (key_of(client, ledger), stored(client, ledger)) for ledger in (cut, gone)}
    put(client, kept[cut][0], {**kept[cut][1], "Body": kept[cut][1]["Body"][:-1]})
    client.delete_object(Bucket=BUCKET, Key=kept[gone][0])
    trueup.set("deletion.mode", "enforce")
    whole = [*lost[BLOCKS[0]], *lost["small"]]
    trueup.until("those with whole copies to be confirmed", lambda: confirmed(trueup, whole))
    reasons = [trueup.until("the other to be blocked", lambda i=ledger: blocked(trueup, i)) for ledger in (cut, gone)]
    assert ("bytes at byte" in reasons[0], "found none" in reasons[1]) == (True, True), reasons
    assert (standing(witness, whole), standing(witness, [cut, gone])) == ([], [cut, gone])
    for key, content in kept.values():
        put(client, key, content)
    trueup.until("they to be confirmed once their copies are whole", lambda: confirmed(trueup, [cut, gone]))
    assert standing(witness, [cut, gone]) == []
    for name in lost:
        assert messages.read(topic(name)) == (tuple(range(COUNT)), 0)


def test_unreferenced_objects_are_reported_and_deleted_only_after_approval(
    trueup: Trueup, cluster: SandboxPulsar, messages: MessageClient, lost: dict[str, list[int]], client: Any
) -> None:
    key = key_of(client, lost["small"][0])
    before, unreferenced = {one for one in keys(client) if not one.startswith(FOREIGN_UID)}, f"{FOREIGN_UID}{key[36:]}"
    size = sum(client.head_object(Bucket=BUCKET, Key=key + end)["ContentLength"] for end in ENDS)
    trueup.set("deletion.mode", "observe")  # the next mode change acts on both objects
    for end in ENDS:
        source = {"Bucket": BUCKET, "Key": key + end}
        client.copy_object(Bucket=BUCKET, Key=unreferenced + end, CopySource=source)
    reported = trueup.until("both of them to be told", lambda: replaced(trueup, size))
    assert [(row["ledger"], row["owner"], row["bytes"]) for row in reported] == [
        (lost["small"][0], owner("small"), size)
    ]
    trueup.set("deletion.mode", "enforce")
    rows = trueup.until("them to wait", lambda: waiting_objects(trueup))
    assert keys(client) == before | {unreferenced + end for end in ENDS}
    assert trueup.run("approve", rows[0]["id"]).code == 0
    trueup.until("them to be gone", lambda: keys(client) == before)
    assert messages.read(topic("small")) == (tuple(range(COUNT)), 0)


def test_no_secret_is_shown_or_written(trueup: Trueup) -> None:
    shown = "".join(trueup.get(path)[1] for path in ("api/status", "api/deletions", "api/config", "metrics", "status"))
    files = [trueup.process.log, *trueup.data.rglob("*.log")]
    written = [path for path in files if path.is_file() and SECRET.encode() in path.read_bytes()]
    assert (SECRET in shown, written) == (False, [])


def replaced(trueup: Trueup, size: int) -> list[Any]:
    """All replaced objects, once their total size is ``size``."""
    reported = [
        row for row in trueup.json("get", "ledgers", "--unreferenced") if row["rule"] == "deletion.copy-replaced"
    ]
    return reported if sum(row["bytes"] for row in reported) == size else []


def waiting_objects(trueup: Trueup) -> list[Any]:
    """Deletions of objects that await approval."""
    rows = trueup.api("plan")
    return [row for row in rows if row["stage"] == "awaiting approval" and row["rule"].startswith("deletion.copy")]


def keys(client: Any) -> set[str]:
    return {found["Key"] for found in client.list_objects_v2(Bucket=BUCKET)["Contents"]}


def stored(client: Any, ledger: int) -> dict[str, Any]:
    """The data object of a ledger with its metadata. Brokers do not read an object whose metadata lacks the format."""
    found = client.get_object(Bucket=BUCKET, Key=key_of(client, ledger))
    return {"Body": found["Body"].read(), "Metadata": found["Metadata"]}


def put(client: Any, key: str, content: dict[str, Any]) -> None:
    client.put_object(Bucket=BUCKET, Key=key, **content)
