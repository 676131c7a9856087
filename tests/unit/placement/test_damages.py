"""Replicas that readers reported as damaged: a report is only a reason for a read of one's own."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.unit.cli.fake_engine import FakeEngine
from tests.unit.placement.test_reconciler import Topics
from trueup.state.bookkeeper.ledgers import Column
from trueup.state.common.errors import Refused, Retry, TrueupError
from trueup.state.placement.damage import (
    AGAIN_MS,
    CONFIRMED_MS,
    MOST,
    ReplicaDamage,
    ReplicaRange,
    ReplicaRead,
    crowded_out,
    reported,
)
from trueup.streams.bookkeeper.selection import LedgerSelection
from trueup.streams.catalog import all_metrics
from trueup.streams.cli.main import invoke
from trueup.streams.placement.damages import DamageReports
from trueup.streams.placement.metrics import PlacementMetrics
from trueup.streams.placement.topics import DAMAGES
from trueup.streams.runtime.metrics import Metrics
from trueup.streams.runtime.stream import Filter, Finding, finding_json
from trueup.streams.web.api import create_app, serve

REPLICA = ReplicaRange(7, "b1:3181", 3, 9)
BODY = {"ledger": 7, "bookie": "b1:3181", "first": 3, "last": 9, "found": "missing"}
WHO = "ada at 10.0.0.7"
BAD = ReplicaRead(7, (3, 9), ())
INTACT = ReplicaRead(7, (), ())
Answer = ReplicaRead | TrueupError


class DamageSetting:
    """Reports over bookies with the given answers, and an in-memory journal."""

    def __init__(self, answer: Answer = INTACT, journal: Topics | None = None) -> None:
        self.answer, self.journal, self.now_ms = answer, journal or Topics(), 1_000
        self.metrics = Metrics()
        self.asked: list[ReplicaRange] = []
        typed: Any = self.journal
        self.reports = DamageReports(self, typed, PlacementMetrics(self.metrics), lambda: self.now_ms)
        self.reports.load()

    def replica(self, replica: ReplicaRange) -> ReplicaRead:
        self.asked.append(replica)
        if isinstance(self.answer, TrueupError):
            raise self.answer
        return self.answer

    def select(self, ledgers: Column, where: LedgerSelection) -> Column:
        """All ledgers belong to topics of t/n."""
        return ledgers if where.namespace == "t/n" else ledgers[:0]

    def report(self, *replicas: ReplicaRange) -> int:
        return self.reports.report([(one, True) for one in replicas or [REPLICA]], WHO)

    def pass_ms(self, ms: int = 1) -> None:
        self.now_ms += ms
        self.reports.reconcile()

    def findings(self) -> list[Finding]:
        return [f for confirmed in (True, False) for f in self.reports.findings(Filter(), confirmed)]

    def kept(self) -> list[Any]:
        return [value for (topic, _), value in self.journal.taken.items() if topic == DAMAGES and value is not None]

    def outcome(self, name: str) -> float:
        return (
            self.metrics.registry.get_sample_value(
                "trueup_replica_reports_total", {"cluster": "bookkeeper", "outcome": name}
            )
            or 0.0
        )


@pytest.mark.parametrize(
    ("wanted", "count"),
    [
        (Filter(bookie="b1:3181"), 1),
        (Filter(bookie="b2:3181"), 0),
        (Filter(namespace="t/n"), 1),
        (Filter(namespace="t/m"), 0),
    ],
)
def test_findings_are_selected_by_the_bookie_of_the_replica_and_by_namespace(wanted: Filter, count: int) -> None:
    setting = DamageSetting()
    setting.report()
    assert len(setting.reports.findings(wanted, confirmed=False)) == count


def test_a_report_is_unknown_until_trueup_has_read_the_replica():
    setting = DamageSetting()
    assert setting.report() == 1
    (found,) = setting.findings()
    assert (found.verdict, found.rule, found.since_ms) == ("unknown", "placement.replica-reported", 1_000)
    assert found.about == {"ledger": 7, "bookie": "b1:3181"}
    assert (found.more["first"], found.more["last"], found.more["found"]) == (3, 9, "missing")
    assert (found.more["reporter"], setting.asked) == (WHO, [])


def test_damage_that_trueup_reads_itself_is_confirmed():
    setting = DamageSetting(BAD)
    setting.report()
    setting.pass_ms()
    (found,) = setting.findings()
    assert (found.verdict, found.rule) == ("blocked", "placement.replica-damaged")
    assert "of 7 entries that Trueup read: 2 missing, first 3" in found.reason
    assert (setting.reports.counts(), setting.outcome("confirmed")) == ({"reported": 0, "confirmed": 1}, 1)


@pytest.mark.parametrize("answer", [INTACT, Refused("a write set", "none", "nothing")])
def test_a_report_that_is_not_true_is_dropped(answer: Answer):
    setting = DamageSetting(answer)
    setting.report()
    setting.pass_ms()
    assert (setting.findings(), setting.kept(), setting.outcome("refuted")) == ([], [], 1)


def test_without_a_response_of_the_bookie_it_stays_unknown_with_the_reason():
    setting = DamageSetting(Retry("bookie b1:3181", "no response", "later"))
    setting.report()
    setting.pass_ms()
    (found,) = setting.findings()
    assert (found.verdict, "no response" in found.reason) == ("unknown", True)
    setting.pass_ms(AGAIN_MS - 1)
    assert len(setting.asked) == 1
    setting.pass_ms()
    assert len(setting.asked) == 2


def test_confirmed_damage_ends_when_the_replica_is_intact_again():
    setting = DamageSetting(BAD)
    setting.report()
    setting.pass_ms()
    setting.answer = INTACT
    setting.pass_ms(CONFIRMED_MS - 1)
    assert len(setting.findings()) == 1
    setting.pass_ms()
    assert (setting.findings(), setting.outcome("repaired")) == ([], 1)


def test_a_bookie_that_is_down_does_not_end_confirmed_damage():
    setting = DamageSetting(BAD)
    setting.report()
    setting.pass_ms()
    setting.answer = Retry("bookie b1:3181", "no response", "later")
    setting.pass_ms(CONFIRMED_MS)
    assert [found.verdict for found in setting.findings()] == ["blocked"]


def test_the_same_report_counts_once():
    setting = DamageSetting()
    assert (setting.report(), setting.report(), len(setting.kept())) == (1, 0, 1)


def test_after_a_restart_a_confirmed_replica_is_read_again():
    setting = DamageSetting(BAD)
    setting.report()
    setting.pass_ms()
    again = DamageSetting(BAD, setting.journal)
    assert [(found.verdict, found.since_ms) for found in again.findings()] == [("unknown", 1_000)]
    again.pass_ms()
    assert [(found.verdict, found.more["reporter"]) for found in again.findings()] == [("blocked", WHO)]


def test_a_report_that_the_journal_does_not_accept_is_not_remembered():
    setting = DamageSetting()
    setting.journal.down = True
    with pytest.raises(Retry):
        setting.report()
    assert setting.findings() == []


def test_a_pass_reads_few_replicas_and_those_without_a_read_first():
    setting = DamageSetting(Retry("bookie b1:3181", "no response", "later"))
    setting.report(*(ReplicaRange(ledger, "b1:3181", 0, 0) for ledger in range(6)))
    setting.pass_ms()
    setting.pass_ms(AGAIN_MS)
    assert [one.ledger for one in setting.asked][:6] == [0, 1, 2, 3, 4, 5]
    assert len(setting.asked) == 8


def test_a_flood_of_reports_displaces_no_confirmed_damage():
    setting = DamageSetting(BAD)
    setting.report()
    setting.pass_ms()
    for start in range(0, MOST + 200, 100):
        setting.now_ms += 1
        setting.report(*(ReplicaRange(ledger, "b2:3181", 0, 0) for ledger in range(1_000 + start, 1_100 + start)))
    assert setting.reports.counts() == {"reported": MOST - 1, "confirmed": 1}
    assert len(setting.kept()) == MOST


def test_the_oldest_unconfirmed_reports_are_forgotten_first():
    known = [ReplicaDamage(ReplicaRange(n, "b", 0, 0), True, "", n, confirmed=n == 0) for n in range(4)]
    assert [one.at_ms for one in crowded_out(known, 2)] == [1, 2]


def test_a_report_is_parsed():
    assert reported({"replicas": [BODY, {**BODY, "found": "digest"}]}) == [(REPLICA, True), (REPLICA, False)]


@pytest.mark.parametrize(
    "body",
    [
        {},
        {"replicas": []},
        {"replicas": BODY},
        {"replicas": [BODY] * 101},
        {"replicas": [BODY], "delete": True},
        *(
            {"replicas": [{**BODY, **wrong}]}
            for wrong in (
                {"ledger": -1},
                {"ledger": True},
                {"ledger": 1 << 63},
                {"ledger": "7"},
                {"first": 10},
                {"last": 1.5},
                {"bookie": ""},
                {"bookie": "a/b"},
                {"bookie": "b" * 256},
                {"bookie": None},
                {"bookie": "b1\n"},
                {"found": "gone"},
                {"found": ["missing"]},
                {"more": 1},
            )
        ),
    ],
)
def test_a_malformed_report_is_refused(body: dict[str, Any]):
    assert reported(body) is None


@given(
    st.dictionaries(
        st.sampled_from(["replicas", "x"]),
        st.recursive(
            st.none() | st.booleans() | st.integers() | st.text(max_size=5),
            lambda inner: (
                st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from([*BODY, "y"]), inner, max_size=5)
            ),
            max_leaves=10,
        ),
    )
)
def test_hostile_reports_raise_nothing(body: dict[str, Any]):
    assert reported(body) is None or set(body) == {"replicas"}


@pytest.mark.parametrize("answer", [None, BAD])
def test_a_finding_is_shown_by_page_and_command(
    answer: Answer | None, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    setting, engine = DamageSetting(answer or INTACT), FakeEngine()
    setting.report()
    if answer:
        setting.pass_ms()
    engine.judged = [finding_json(found) for found in setting.findings()]
    server = serve(app := create_app(engine, all_metrics()), "127.0.0.1", 0)
    monkeypatch.delenv("COLUMNS", raising=False)
    monkeypatch.setenv("TRUEUP_API", f"http://127.0.0.1:{server.port}")
    assert invoke(["get", "findings"]) == 0
    server.stop()
    page = app.test_client().get("/").text
    rule = "replica-damaged" if answer else "replica-reported"
    for text in (page.partition("Recent actions")[0], capsys.readouterr().out):
        assert ("b1:3181" in text, rule in text, "None" in text) == (True, True, False)


def test_findings_are_filtered_by_verdict_and_rule():
    setting = DamageSetting()
    setting.report()
    assert len(setting.reports.findings(Filter(rule="placement.replica-reported"), confirmed=False)) == 1
    assert setting.reports.findings(Filter(verdict="blocked"), confirmed=False) == []
