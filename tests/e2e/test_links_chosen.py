"""Options of a link, end to end: many topics into one, approval of every change, rights, consumer groups, handling of
records that the target rejects, settings of topics that are copied both ways, and the reported state of links whose
records cannot be copied."""

import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tests.e2e.trueup import Trueup
from tests.integration.replication.mirror import Side, sides
from trueup.connectors.contract import LogId
from trueup.connectors.replication.config_sync import Alignment
from trueup.state.replication.config_sync import Action, ChangeKind, Right

pytestmark = [pytest.mark.servers, pytest.mark.release]
SMALL = 20_000
"""Largest batch in bytes that the target accepts in topics with rejected records."""
GROUP = "billing"
READER = Right("topic", "literal", "asked", "User:guest", "*", "read", "allow")
BOTH_WAYS, CHANGED = ("made", "disputed"), "9000000"
"""Topics that links copy both ways: one that a link created, and one that existed on both sides."""
BARRED = {"stranger": ("guest", "SASL_PLAINTEXT"), "reader": ("link", "SASL_SSL")}
"""Links without permission to write, with user and listener at the target. One user has no rights, one lacks WRITE."""
READABLE = [
    Right("topic", "literal", "reader", "User:link", "*", what, "allow") for what in ("read", "describe_configs")
]
WRITTEN = [f"value {number}" for number in range(40)]
REFUSED = random.Random(1).randbytes(2 * SMALL).hex()


@dataclass(frozen=True, slots=True)
class Place:
    """Both clusters and the application between them."""

    east: Side
    west: Side
    trueup: Trueup
    seen: list[tuple[float, Any]]
    """Repeated samples of the rows of all links."""

    def values(self, topic: str) -> list[str]:
        """Values in partition 0 at the target."""
        return [value for _, value, _ in self.west.read(topic)]

    def arrives(self, topic: str, *values: str) -> None:
        """Wait until the target has exactly these values, in any order."""
        self.trueup.until(f"{len(values)} records in {topic}", lambda: len(self.values(topic)) >= len(values))
        assert sorted(self.values(topic)) == sorted(values)

    def waiting(self, kind: str) -> list[str]:
        """Ids of the actions of a kind that await approval."""
        rows = self.trueup.json("plan")
        return [row["id"] for row in rows if (row["kind"], row["stage"]) == (kind, "awaiting approval")]

    def approve(self, kind: str) -> None:
        """Wait for actions of a kind that await approval, and approve them."""
        names = self.trueup.until(f"{kind} to be asked for", lambda: self.waiting(kind))
        result = self.trueup.run("approve", *names)
        assert result.code == 0, result

    def path(self, link: str) -> str:
        found: str = self.trueup.api(f"links/{link}")["path"]
        return found

    def waited(self, link: str, since: int = 0) -> set[str]:
        """States that a link reported while records waited and none was copied in that run."""
        rows = [row for _, rows in self.seen[since:] for row in rows if row["link"] == link]
        return {row["state"] for row in rows if row["lag_records"] > 0 and not row["copied"]}

    def retention(self, side: Side, topic: str) -> str:
        found = side.discovery.topics([topic])
        return found[topic].configs["retention.ms"].value if topic in found else ""

    def retain(self, side: Side, *topics: str) -> None:
        """Set a different retention, as an operator of that cluster."""
        new = [Action(ChangeKind.SET, topic, "", "", configs={"retention.ms": CHANGED}) for topic in topics]
        Alignment(side.cluster, side.cluster).apply(new)


def _behind(found: dict[str, Any], records: int) -> dict[str, Any] | None:
    return found if found["lag_records"] == records else None


@pytest.fixture(scope="module")
def place(new_root: Callable[[], Path]) -> Iterator[Place]:
    common = {"source": "east", "target": "west", "lease_s": 2, "heartbeat_s": 1}
    links = {
        "merged": {**common, "mode": "enforce", "topics": ["/part-.*/"], "into": "whole"},
        "asked": {
            **common,
            "mode": "approve",
            "topics": ["asked"],
            "groups": [GROUP],
            "align": ["partitions", "configs", "acls"],
        },
        "letters": {**common, "mode": "enforce", "topics": ["letters"], "failures": "dead-letter", "align": []},
        "hooked": {
            **common,
            "mode": "enforce",
            "topics": ["hooked"],
            "failures": "hook",
            "align": [],
            "hook": "tests.conformance.hooks:handle",
        },
        "there": {**common, "mode": "enforce", "topics": [*BOTH_WAYS]},
        "back": {**common, "source": "west", "target": "east", "mode": "enforce", "topics": [*BOTH_WAYS, "western"]},
        **{link: {**common, "target": link, "mode": "enforce", "topics": [link], "align": []} for link in BARRED},
    }
    with sides(new_root()) as (east, west):
        for topic in ("part-1", "part-2", "asked", "letters", "hooked", "made", *BARRED):
            east.create(topic, 1, retention_ms="-1")
        for topic in ("letters", "hooked"):
            west.create(topic, 1, retention_ms="-1", max_message_bytes=str(SMALL))
        for topic in ("letters.dead-letters", "western", *BARRED):
            west.create(topic, 1, retention_ms="-1")
        for side, retention_ms in ((east, "7000000"), (west, "8000000")):
            side.create("disputed", 1, retention_ms=retention_ms)
        Alignment(east.cluster, west.cluster).apply(
            [Action(ChangeKind.ALLOW, "", "", "", right=one) for one in READABLE]
        )
        kafka = {side.name: {"bootstrap": side.broker.bootstrap, "bit": side.endpoint.bit} for side in (east, west)}
        for bit, (link, (user, listener)) in enumerate(BARRED.items(), len(kafka)):
            east.write(link, WRITTEN)
            options = west.broker.client(listener, user)
            kafka[link] = {"bootstrap": options.pop("bootstrap.servers"), "bit": bit, "options": options}
        with Trueup(None, new_root(), kafka=kafka, links=links) as trueup, trueup.sampled("links") as seen:
            trueup.start()
            yield Place(east, west, trueup, seen)


def test_topics_go_into_one(place: Place) -> None:
    place.east.write("part-1", WRITTEN[:20])
    place.east.write("part-2", WRITTEN[20:])
    place.arrives("whole", *WRITTEN)


def test_a_topic_that_is_made_later_joins_them(place: Place) -> None:
    place.east.create("part-3", 1)
    place.east.write("part-3", ["late"])
    place.arrives("whole", *WRITTEN, "late")


def test_what_goes_into_one_is_copied_record_by_record(place: Place) -> None:
    assert place.path("merged") == "records"


def test_in_approve_nothing_is_created_without_approval(place: Place) -> None:
    place.east.write("asked", WRITTEN)
    place.trueup.until("the topic to be asked for", lambda: place.waiting("create"))
    assert "asked" not in place.west.discovery.names()


def test_records_that_wait_for_approval_show_in_the_state_of_the_link(place: Place) -> None:
    found = place.trueup.until("the records to be seen", lambda: _behind(place.trueup.api("links/asked"), 40))
    assert (found["state"], found["copies"][0]["stage"]) == ("waiting", "waiting")


def test_in_approve_records_come_once_the_topic_is_approved(place: Place) -> None:
    place.approve("create")
    place.arrives("asked", *WRITTEN)


def test_a_link_is_up_once_all_is_copied(place: Place) -> None:
    place.trueup.until("the link to be up", lambda: place.trueup.api("links/asked")["state"] == "up")


def test_a_group_goes_on_at_the_target_once_that_is_approved(place: Place) -> None:
    place.east.commit(GROUP, {LogId("asked", 0): 25})
    place.approve("group")
    moved = {LogId("asked", 0): 25}
    place.trueup.until("the group's place", lambda: place.west.groups.offsets([GROUP])[GROUP] == moved)
    assert place.west.consume(GROUP, "asked", 15) == WRITTEN[25:]


def test_a_right_follows_once_it_is_approved_and_goes_when_it_is_revoked(place: Place) -> None:
    here = Alignment(place.west.cluster, place.east.cluster)  # acts at the source
    here.apply([Action(ChangeKind.ALLOW, "", "", "", right=READER)])
    place.approve("allow")
    place.trueup.until("the right at the target", lambda: READER in here.rights()[0])
    here.apply([Action(ChangeKind.REVOKE, "", "", "", right=READER)])
    place.approve("revoke")
    place.trueup.until("the right to be gone", lambda: READER not in here.rights()[0])


def test_a_refused_record_is_a_dead_letter_and_the_copy_goes_on(place: Place) -> None:
    place.east.write("letters", [*WRITTEN[:3], REFUSED, *WRITTEN[3:]])
    place.arrives("letters", *WRITTEN)
    assert place.values("letters.dead-letters") == [REFUSED]


def test_the_hook_decides_on_a_refused_record_and_the_copy_continues(place: Place) -> None:
    place.east.write("hooked", [*WRITTEN[:3], REFUSED, *WRITTEN[3:]])
    place.arrives("hooked", *WRITTEN)
    place.trueup.until("it to be counted", lambda: place.trueup.api("links/hooked")["dismissed"] == 1)


@pytest.mark.parametrize("link", BARRED)
def test_a_link_that_may_not_write_stops_and_names_the_right(place: Place, link: str) -> None:
    found = place.trueup.until("it to stop", lambda: stopped(place.trueup.api(f"links/{link}")))
    assert (found["lag_records"], "AUTHORIZATION" in found["reason"].upper()) == (40, True), found["reason"]


@pytest.mark.parametrize("link", BARRED)
def test_a_link_that_may_not_write_is_never_up(place: Place, link: str) -> None:
    assert ("stopped" in place.waited(link), "up" in place.waited(link)) == (True, False)


def test_a_link_is_not_up_before_spark_is_there(place: Place) -> None:
    place.trueup.until("the topic that a link made", lambda: place.retention(place.west, "made") == "-1")
    place.trueup.kill()
    place.east.write("made", WRITTEN)
    since = len(place.seen)
    place.trueup.start()
    place.arrives("made", *WRITTEN)
    states = {link: place.waited(link, since) for link in ("there", *BARRED)}
    assert ("starting" in states["there"], [link for link in states if "up" in states[link]]) == (True, []), states


def test_settings_of_a_copy_do_not_go_back_to_its_origin(place: Place) -> None:
    """A second changed setting on the same link proves that the link has compared settings since."""
    place.trueup.set("links.there.mode", "observe")
    try:
        place.retain(place.west, "made", "western")
        place.trueup.until("what goes back", lambda: place.retention(place.east, "western") == CHANGED)
        assert place.retention(place.east, "made") == "-1"
    finally:
        place.trueup.set("links.there.mode", "enforce")
    place.trueup.until("what goes there", lambda: place.retention(place.west, "made") == "-1")


def test_without_a_known_origin_no_setting_is_aligned(place: Place) -> None:
    assert [place.retention(side, "disputed") for side in (place.east, place.west)] == ["7000000", "8000000"]
    assert "alignment.origin-unknown" in str(place.trueup.json("get", "actions", "--limit", "10000"))


def stopped(found: dict[str, Any]) -> dict[str, Any] | None:
    return found if found["state"] == "stopped" else None
