"""Requests to a broker: their order, and the state that is persisted before each."""

from dataclasses import replace
from typing import Any

import pytest

from trueup.connectors.kafka.logdirs.client import DescribedBroker, MoveOutcome, ReplicaLocation
from trueup.state.common.errors import Retry
from trueup.state.logdirs.lifecycle import STALLED_MS, MoveStage, Relocation
from trueup.state.logdirs.model import Broker, LogDir, Row, replicas
from trueup.state.logdirs.settings import LogDirsSettings
from trueup.state.logdirs.verdicts import NOTHING, OwnChanges, RequestedSettings
from trueup.streams.config.live import LiveSection
from trueup.streams.logdirs.executor import SETTLED_MS, DirectoryBalancer, ours_of, record_of
from trueup.streams.logdirs.reconciler import LogDirsReconciler

GB = 1 << 30
ROWS: tuple[Row, ...] = tuple(("t", n, 0, 10 * GB, 0, False) for n in range(8))
DIRS = (LogDir("/small", 100 * GB, 10 * GB), LogDir("/large", 300 * GB, 280 * GB))
POLICY = LogDirsSettings(mode="enforce", headroom_bytes=0, band=0.0)


class FakeBroker:
    """A broker that applies every request and logs it."""

    def __init__(self) -> None:
        self.broker: Broker | None = Broker(1, DIRS, replicas(ROWS))
        self.log: list[tuple[Any, ...]] = []
        self.limit = 0
        self.setting: list[str] = []
        """The paths in the setting of cordons. An offline directory does not show its own."""
        self.answer = "started"
        self.deaf = self.away = self.loses = False
        """Whether the broker does not respond to a throttle, is away, or executes a cordon whose response is lost."""
        self.stale: tuple[Broker, int] | None = None
        """The directories and the rate limit that the broker still shows."""

    def brokers(self) -> dict[int, str]:
        if self.away:
            raise Retry("brokers", "nobody", "try again")
        return {1: ""}

    def look(self, brokers: object = None) -> list[DescribedBroker]:
        shown = self.stale[0] if self.stale else self.broker
        return [DescribedBroker(1, shown, "" if shown else "no answer")]

    def place(self, places: list[ReplicaLocation]) -> list[MoveOutcome]:
        self.log.append(("place", *[(p.partition, p.path) for p in places]))
        return [MoveOutcome(p, self.answer, "because") for p in places]

    def throttle(self, broker: int, bytes_per_s: int | None) -> None:
        if self.deaf:
            raise Retry("an answer", "none", "try again")
        self.log.append(("throttle", bytes_per_s))
        self.limit = bytes_per_s or 0

    def throttled(self, brokers: object) -> dict[int, int]:
        limit = self.stale[1] if self.stale else self.limit
        return {1: limit} if limit else {}

    def cordon(self, broker: int, paths: list[str]) -> None:
        self.log.append(("cordon", *paths))
        assert self.broker is not None
        dirs = tuple(d._replace(cordoned=d.online and d.path in paths) for d in self.broker.dirs)
        self.broker, self.setting = replace(self.broker, dirs=dirs), paths
        if self.loses:
            raise Retry("an answer", "none", "try again")

    def cordoned(self, broker: int) -> frozenset[str]:
        return frozenset(self.setting)

    def close(self) -> None:
        self.log.append(("close",))

    def create_topic(self, name: str, assignments: object, configs: object) -> None:
        self.log.append(("topic", name))


class Bench:
    """The directories of one cluster over a fake broker."""

    def __init__(self, ours: OwnChanges = NOTHING, **policy: object) -> None:
        self.client, self.policy = FakeBroker(), replace(POLICY, **policy)  # type: ignore[arg-type]
        self.notes: list[tuple[Any, ...]] = []
        self.now_ms, self.journal_down = 1, False
        balancer = DirectoryBalancer({1: ours} if ours != NOTHING else {}, self.keep, self.say, lambda *_: None)
        self.dirs = LogDirsReconciler(
            "east", LiveSection(lambda: self.policy), balancer, lambda: self.client, lambda: self.now_ms, self.say
        )

    def keep(self, broker: int, ours: OwnChanges) -> None:
        if self.journal_down:
            raise Retry("acknowledged records", "none", "try again")
        self.client.log.append(("keep", ours))

    def say(self, *words: Any) -> None:
        self.notes.append(words)

    def reconcile(self) -> list[str]:
        """Names of the broker calls, in order."""
        self.client.log.clear()
        self.dirs.reconcile()
        return [entry[0] for entry in self.client.log]

    @property
    def ours(self) -> OwnChanges:
        return self.dirs.balancer.of(1)


def arrived(bench: Bench) -> None:
    """The ordered move is complete, and the source replica is gone."""
    (move,) = bench.ours.moves
    rows = [row for row in ROWS if row[1] != move.partition] + [("t", move.partition, 1, 10 * GB, 0, False)]
    assert bench.client.broker is not None
    small, large = bench.client.broker.dirs
    dirs = (small._replace(usable=small.usable + move.bytes), large._replace(usable=large.usable - move.bytes))
    bench.client.broker = replace(bench.client.broker, dirs=dirs, replicas=replicas(rows))


def stalled() -> tuple[Bench, Relocation]:
    """The ordered move copies and makes no progress."""
    bench = Bench()
    bench.reconcile()
    (move,) = bench.ours.moves
    assert bench.client.broker is not None
    bench.client.broker = replace(
        bench.client.broker, replicas=replicas((*ROWS, ("t", move.partition, 1, GB, 9, True)))
    )
    bench.reconcile()
    bench.now_ms += STALLED_MS + 1
    return bench, move


def test_all_is_remembered_before_it_is_done_and_the_throttle_comes_before_the_move() -> None:
    assert Bench().reconcile() == ["keep", "cordon", "throttle", "place"]


def test_what_is_remembered_covers_what_is_about_to_be_done() -> None:
    bench = Bench()
    bench.reconcile()
    kept = bench.client.log[0][1]
    assert (kept.cordoned, kept.throttles, [m.stage for m in kept.moves]) == (
        {"/small"},
        {POLICY.throttle_bytes_per_s},
        [MoveStage.ORDERED],
    )


def test_our_throttle_goes_when_the_move_has_arrived_and_nothing_follows() -> None:
    bench = Bench()
    bench.reconcile()
    bench.policy = replace(bench.policy, paused=True)
    arrived(bench)
    bench.reconcile()
    removed = ("throttle", None) in bench.client.log
    calls = bench.reconcile()
    assert (removed, calls[-1], bench.ours) == (True, "keep", NOTHING)


def test_a_move_is_reported_once_when_the_journal_did_not_respond() -> None:
    bench = Bench()
    bench.reconcile()
    arrived(bench)
    bench.journal_down = True
    bench.reconcile()
    bench.journal_down = False
    bench.reconcile()
    assert [note[2] for note in bench.notes if note[1] == "move"].count(MoveStage.ARRIVED) == 1


def test_a_move_is_cancelled_into_a_source_that_was_cordoned() -> None:
    bench, move = stalled()
    bench.reconcile()
    assert [entry for entry in bench.client.log if entry[0] in ("cordon", "place")] == [
        ("cordon",),
        ("place", (move.partition, "/small")),
    ]


def test_a_refused_cancel_is_a_problem_until_it_is_accepted() -> None:
    bench, move = stalled()
    bench.client.answer = "refused"
    bench.reconcile()  # opens the source: the broker may not know it yet
    opening = bench.dirs.left()
    bench.reconcile()
    refused = f"cancel moves: t-{move.partition} to /small; found because" in str(bench.dirs.left())
    bench.client.answer = "started"
    bench.reconcile()
    assert (opening, refused, bench.dirs.left()) == ([], True, [])


def test_a_refused_cancel_does_not_keep_the_throttle() -> None:
    bench, _ = stalled()
    bench.client.answer = "refused"
    bench.reconcile()
    bench.policy = replace(bench.policy, throttle_bytes_per_s=0)
    bench.reconcile()
    assert ("throttle", None) in bench.client.log


def test_a_refused_move_is_reported_once_when_the_throttle_cannot_be_removed() -> None:
    bench = Bench()
    bench.client.answer = "refused"
    bench.reconcile()
    refused = [note for note in bench.notes if note[2] == MoveStage.REFUSED]
    assert (len(refused), [entry[1].moves[0].stage for entry in bench.client.log if entry[0] == "keep"][-1]) == (
        1,
        MoveStage.REFUSED,
    )


def test_a_start_after_a_kill_takes_back_what_may_have_been_set() -> None:
    bench = Bench(OwnChanges(frozenset({"/small"}), frozenset({7})), mode="observe")
    bench.client.cordon(1, ["/small"])
    bench.client.limit = 7
    bench.reconcile()
    requests = [e for e in bench.client.log if e[0] in ("cordon", "throttle")]
    settled(bench)
    assert (requests, bench.ours) == ([("cordon",), ("throttle", None)], NOTHING)


def test_a_throttle_of_others_is_neither_changed_nor_removed() -> None:
    bench = Bench(OwnChanges(throttles=frozenset({7})))
    bench.client.limit = 9
    calls = bench.reconcile()
    settled(bench)
    assert ("throttle" in [*calls, *bench.reconcile()], bench.ours.throttles) == (False, frozenset())


def lagging(bench: Bench, **policy: object) -> None:
    """A pass with new settings, after which the broker still shows what it showed before, and one more pass."""
    assert bench.client.broker is not None
    before = bench.client.broker, bench.client.limit
    bench.policy = replace(bench.policy, **policy)  # type: ignore[arg-type]
    bench.reconcile()
    bench.client.stale = before
    bench.reconcile()


def settled(bench: Bench) -> None:
    """A pass after the time that a broker has to show the changes of an earlier process or of a failed request."""
    bench.now_ms += SETTLED_MS
    bench.reconcile()


def shows_late(bench: Bench) -> None:
    """A pass while the broker does not show its cordons, and one after it shows them."""
    assert bench.client.broker is not None
    dirs = bench.client.broker.dirs
    bench.client.broker = replace(bench.client.broker, dirs=DIRS)
    bench.reconcile()
    bench.client.broker = replace(bench.client.broker, dirs=dirs)
    bench.reconcile()


def test_a_cordon_that_a_broker_shows_late_remains_ours_after_a_restart() -> None:
    requested = RequestedSettings(1, frozenset({"/small"}))
    bench = Bench(OwnChanges(frozenset({"/small"}), requested=requested), mode="observe")
    bench.client.cordon(1, ["/small"])
    shows_late(bench)
    assert bench.client.setting == []


def test_a_cordon_whose_response_was_lost_remains_ours() -> None:
    bench = Bench()
    bench.client.loses = True
    bench.reconcile()
    bench.client.loses, bench.policy = False, replace(bench.policy, mode="observe")
    shows_late(bench)
    assert bench.client.setting == []


def reopened() -> tuple[Bench, Broker]:
    """A process that begins after another one has opened a directory, and the broker that still shows the cordon."""
    bench = Bench(OwnChanges(frozenset({"/small"})), mode="observe")
    bench.client.cordon(1, ["/small"])
    shown = bench.client.broker
    bench.reconcile()
    assert shown is not None
    return Bench(bench.ours, mode="observe"), shown


def test_an_opened_directory_that_a_broker_shows_as_cordoned_is_waited_for_after_a_restart() -> None:
    bench, shown = reopened()
    opened, bench.client.broker = bench.client.broker, shown
    calls = bench.reconcile()
    bench.client.broker = opened
    bench.reconcile()
    assert (calls, bench.ours) == ([], NOTHING)


def test_a_cordon_that_another_client_sets_after_ours_was_removed_remains() -> None:
    bench, shown = reopened()
    bench.client.broker, bench.client.setting = shown, ["/small"]
    bench.reconcile()
    settled(bench)
    bench.reconcile()
    assert (bench.client.setting, bench.ours) == (["/small"], NOTHING)


def test_a_cordon_that_another_client_sets_after_the_broker_was_described_remains() -> None:
    bench = Bench(OwnChanges(frozenset({"/small"})), mode="observe")
    bench.client.cordon(1, ["/small"])
    bench.client.setting = ["/small", "/large"]
    bench.reconcile()
    assert bench.client.setting == ["/large"]


def test_a_throttle_that_a_broker_does_not_show_yet_remains_ours() -> None:
    bench = Bench()
    bench.reconcile()
    lagging(bench, throttle_bytes_per_s=5)
    bench.client.stale = None
    arrived(bench)
    bench.policy = replace(bench.policy, paused=True)
    bench.reconcile()
    bench.reconcile()
    assert (bench.client.limit, bench.ours) == (0, NOTHING)


def test_a_cordon_that_a_broker_does_not_show_yet_remains_ours() -> None:
    bench = Bench()
    before = bench.client.broker
    bench.reconcile()
    bench.policy, bench.client.stale = replace(bench.policy, mode="observe"), before and (before, 0)
    bench.reconcile()
    bench.client.stale = None
    bench.reconcile()
    assert bench.client.broker is not None
    assert [d.cordoned for d in bench.client.broker.dirs] == [False, False]


def test_nothing_is_decided_while_a_broker_does_not_show_its_settings() -> None:
    bench = Bench()
    lagging(bench)
    bench.policy = replace(bench.policy, mode="observe")
    first = bench.dirs.known[1].decision
    assert (bench.reconcile(), bench.dirs.known[1].decision is first) == ([], True)


def test_a_broker_is_judged_by_what_it_shows_when_it_had_the_time_to_show_a_change() -> None:
    bench = Bench()
    lagging(bench)
    bench.now_ms += SETTLED_MS
    assert {"cordon", "throttle"} <= {*bench.reconcile()}


def test_observe_touches_nothing() -> None:
    assert Bench(mode="observe").reconcile() == []


def test_a_refused_move_rests_and_the_next_of_the_plan_goes_on() -> None:
    bench = Bench()
    bench.client.answer = "refused"
    bench.reconcile()
    first = [entry for entry in bench.client.log if entry[0] == "place"]
    bench.reconcile()
    again = [entry for entry in bench.client.log if entry[0] == "place"]
    assert (bench.ours.moves[0].stage, first[0][1] != again[0][1]) == (MoveStage.REFUSED, True)


def test_nothing_moves_without_its_throttle() -> None:
    bench = Bench()
    bench.client.deaf = True
    assert ("place" in bench.reconcile(), bench.dirs.known[1].rule) == (False, "logdirs.cannot-change")


def test_a_broker_that_does_not_answer_is_unknown_and_keeps_what_is_ours() -> None:
    bench = Bench(OwnChanges(throttles=frozenset({7})))
    bench.client.broker = None
    assert (bench.reconcile(), bench.dirs.known[1].rule, bench.ours.throttles) == ([], "logdirs.unseen", {7})


def test_what_cannot_be_taken_back_yet_is_a_problem() -> None:
    bench = Bench()
    bench.reconcile()
    bench.policy, well = replace(bench.policy, mode="observe"), bench.dirs.left()
    bench.client.broker, was = None, bench.client.broker
    bench.reconcile()
    away = bench.dirs.left()
    bench.client.broker = was
    bench.reconcile()
    expected = "broker 1 of east still has a throttle and cordons and moves of Trueup: no answer"
    assert (well, away, bench.dirs.left()) == ([], [expected], [])


def test_a_cordon_that_was_set_by_hand_and_is_the_same_as_ours_would_be_is_not_ours() -> None:
    bench = Bench(strategy="size", paused=False)
    bench.client.cordon(1, ["/small"])
    bench.reconcile()
    ours, bench.policy = bench.ours.cordoned, replace(bench.policy, mode="observe")
    bench.reconcile()
    assert bench.client.broker is not None
    assert (ours, [d.cordoned for d in bench.client.broker.dirs]) == (frozenset(), [True, False])


def test_a_cordon_of_ours_is_taken_back_while_its_directory_is_offline() -> None:
    bench = Bench(OwnChanges(frozenset({"/small"})), mode="observe")
    assert bench.client.broker is not None
    small, large = bench.client.broker.dirs
    bench.client.broker = replace(bench.client.broker, dirs=(small._replace(online=False), large))
    calls = bench.reconcile()
    bench.reconcile()
    assert ("cordon" in calls, bench.client.setting, bench.ours) == (True, [], NOTHING)


@pytest.mark.parametrize(("own", "left"), [((), ["/large", "/small"]), (("/small",), ["/large"])])
def test_a_cordon_of_another_client_on_an_offline_directory_remains(own: tuple[str, ...], left: list[str]) -> None:
    third = LogDir("/third", 300 * GB, 250 * GB)
    bench = Bench(OwnChanges(frozenset({*own, "/third"})), mode="observe")
    assert bench.client.broker is not None
    small, large = bench.client.broker.dirs
    bench.client.broker = replace(bench.client.broker, dirs=(small, large, third))
    bench.client.cordon(1, ["/small", "/large", "/third"])
    small, *others = bench.client.broker.dirs
    bench.client.broker = replace(bench.client.broker, dirs=(small._replace(online=False, cordoned=False), *others))
    bench.reconcile()
    assert sorted(bench.client.setting) == left


def test_a_move_that_an_offline_directory_keeps_from_ending_is_a_problem() -> None:
    bench = Bench()
    bench.reconcile()
    well, found = bench.dirs.left(), bench.client.broker
    assert found is not None
    small, large = found.dirs
    bench.client.broker = replace(found, dirs=(small, large._replace(online=False, total=-1, usable=-1)))
    bench.reconcile()
    now, broken = bench.client.broker.dirs, bench.dirs.left()
    back = [d._replace(cordoned=shown.cordoned) for d, shown in zip(found.dirs, now, strict=True)]
    bench.client.broker = replace(found, dirs=tuple(back))
    bench.reconcile()
    assert (well, ["offline: /large" in reported for reported in broken], bench.dirs.left()) == ([], [True], [])


def test_a_cluster_that_does_not_answer_is_asked_anew() -> None:
    bench = Bench()
    bench.client.away = True
    assert (bench.reconcile(), "nobody" in bench.dirs.problem) == (["close"], True)
    bench.client.away = False
    assert (bench.reconcile()[-1], bench.dirs.problem) == ("place", "")


def test_an_approved_move_is_done_and_no_other() -> None:
    bench = Bench(mode="approve", strategy="partition", at_once=5)
    bench.reconcile()
    decision = bench.dirs.known[1].decision
    assert decision is not None
    name = f"move-1-t-{decision.moves[1].partition}"
    full = next(n for n in _names(bench) if n.startswith(name))
    bench.dirs.approve([full])
    bench.reconcile()
    assert [len(entry) for entry in bench.client.log if entry[0] == "place"] == [2]


def test_an_approved_move_is_done_after_a_pass_that_failed() -> None:
    bench = Bench(mode="approve", strategy="partition")
    bench.reconcile()
    bench.dirs.approve([n for n in _names(bench) if n.startswith("move")])
    bench.journal_down = True
    failed = "place" in bench.reconcile()
    bench.journal_down = False
    assert (failed, "place" in bench.reconcile()) == (False, True)


def test_a_cordon_waits_for_approval_too() -> None:
    bench = Bench(mode="approve")
    before = bench.reconcile()
    bench.dirs.approve([n for n in _names(bench) if n.startswith("cordon")])
    assert ("cordon" in before, "cordon" in bench.reconcile()) == (False, True)


@pytest.mark.parametrize(
    "ours", [OwnChanges(frozenset({"/a"}), frozenset({7}), (), frozenset({"move-1-t-0-0"})), NOTHING]
)
def test_what_is_ours_comes_back_from_the_journal(ours: OwnChanges) -> None:
    bench = Bench()
    bench.reconcile()
    for one in (ours, bench.ours):
        record = record_of("east", 1, one, 5)
        assert record is None or ours_of(record) == ("east", 1, one)
        assert (record is None) == (one == NOTHING)


def _names(bench: Bench) -> list[str]:
    from trueup.streams.logdirs.reconciler import _names as names

    decision = bench.dirs.known[1].decision
    assert decision is not None
    return sorted(names(decision))
