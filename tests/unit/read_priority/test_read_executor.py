"""Changes of policies: compared before, written with one field changed, read back."""

from typing import Any

import pytest

from tests.unit.read_priority.read_views import FIRST, LAST, NOW
from trueup.connectors.pulsar.admin.client import PolicyScope
from trueup.connectors.pulsar.admin.policies import FIELD, OffloadPolicy
from trueup.state.common.errors import Refused, Retry, TrueupError, Unknown
from trueup.state.read_priority.lifecycle import NOTHING, Change, ChangeStage, PriorityState, Purpose, Switch
from trueup.state.read_priority.tiers import ReadPriority
from trueup.streams.journal.codec import decode, encode
from trueup.streams.read_priority.executor import PolicyWriter
from trueup.streams.read_priority.topics import PRIORITIES, kept_of, record_of

RAW = {"managedLedgerOffloadDriver": "S3", "s3ManagedLedgerOffloadCredentialSecret": "hidden", "unknown": [1]}
INHERITED = {"managedLedgerOffloadDriver": "S3", "managedLedgerOffloadBucket": "b", "x": None, **RAW}
TARGET = "t/n/a"


class Admin:
    """Policies by name. ``after``: called after each write, as another client; ``fails``: raised by writes."""

    def __init__(self, raw: dict[str, Any] | None) -> None:
        self.raw, self.fails = raw, None
        self.changed: dict[str, Any] | None = None
        self.written: list[Any] = []
        self.unloads: list[str] = []

    fails: TrueupError | None

    def policy(self, scope: PolicyScope) -> OffloadPolicy:
        return OffloadPolicy(self.raw)

    def applied(self, scope: PolicyScope) -> OffloadPolicy:
        return OffloadPolicy(INHERITED)

    def set(self, scope: PolicyScope, policy: OffloadPolicy) -> None:
        self._store(policy.body())

    def remove(self, scope: PolicyScope) -> None:
        self._store(None)

    def unload(self, scope: PolicyScope) -> None:
        self.unloads.append(str(scope))
        if self.fails:
            raise self.fails

    def _store(self, body: dict[str, Any] | None) -> None:
        self.written.append(body)
        if self.fails:
            raise self.fails
        self.raw = self.changed or body


class Journal:
    """What was written to the journal, and how many writes of policies preceded each record."""

    def __init__(self, admin: Admin) -> None:
        self.admin, self.kept = admin, list[tuple[int, PriorityState]]()

    def keep(self, target: str, kept: PriorityState) -> None:
        self.kept.append((len(self.admin.written), kept))


def change(admin: Admin, purpose: Purpose, want: ReadPriority | None) -> Change:
    view = admin.policy(PolicyScope("t", "n", "a")).view()
    return Change(TARGET, purpose, want, view.priority, digest=view.digest, plain=view.plain, model=TARGET)


def execute(admin: Admin, made: Change, kept: PriorityState = NOTHING) -> tuple[PriorityState, Journal]:
    journal = Journal(admin)
    return PolicyWriter(admin, journal.keep, lambda: NOW).execute(made, kept), journal


def test_one_field_is_changed_and_every_other_stays() -> None:
    admin = Admin(RAW)
    found, _ = execute(admin, change(admin, Purpose.DECLARE, FIRST))
    assert (admin.written, found.change and found.change.stage) == (
        [{**RAW, FIELD: "BOOKKEEPER_FIRST"}],
        ChangeStage.ORDERED,
    )


def test_a_switch_is_in_the_journal_before_it_is_sent() -> None:
    admin = Admin({**RAW, FIELD: "TIERED_STORAGE_FIRST"})
    _, journal = execute(admin, change(admin, Purpose.SWITCH, FIRST))
    ((writes, kept),) = journal.kept
    assert (writes, kept.switch) == (0, Switch(LAST, FIRST, NOW))


def test_a_new_policy_has_the_values_in_force_without_credentials() -> None:
    admin = Admin(None)
    found, _ = execute(admin, change(admin, Purpose.SWITCH, FIRST))
    body = {"managedLedgerOffloadDriver": "S3", "managedLedgerOffloadBucket": "b", "unknown": [1]}
    assert admin.written == [{**body, FIELD: "BOOKKEEPER_FIRST"}]
    assert found.switch is not None
    assert found.switch.made == OffloadPolicy(body).view().digest


def returned(admin: Admin, made: str) -> list[Any]:
    kept = PriorityState(switch=Switch(None, FIRST, NOW, made))
    execute(admin, change(admin, Purpose.RETURN, None), kept)
    return admin.written


def test_a_policy_that_trueup_made_is_removed_when_it_returns() -> None:
    raw = {"managedLedgerOffloadDriver": "S3", FIELD: "BOOKKEEPER_FIRST"}
    assert returned(Admin(raw), OffloadPolicy(raw).view().digest) == [None]


def test_a_policy_that_another_client_extended_stays_without_the_field() -> None:
    raw = {"managedLedgerOffloadDriver": "S3", FIELD: "BOOKKEEPER_FIRST"}
    made = OffloadPolicy(raw).view().digest
    assert returned(Admin({**raw, "more": 1}), made) == [{**raw, "more": 1, FIELD: None}]


def test_nothing_is_written_over_a_policy_that_changed_since_the_decision() -> None:
    admin = Admin(RAW)
    decided = change(admin, Purpose.DECLARE, FIRST)
    admin.raw = {**RAW, "unknown": [2]}
    found, journal = execute(admin, decided)
    assert (admin.written, journal.kept, found.change and found.change.rule) == (
        [],
        [],
        "read_priority.changed-meanwhile",
    )


def test_a_policy_that_changed_after_the_write_is_a_finding_and_stays() -> None:
    admin = Admin(RAW)
    admin.changed = {**RAW, "unknown": [2]}
    found, _ = execute(admin, change(admin, Purpose.DECLARE, FIRST))
    assert (len(admin.written), found.change and found.change.rule) == (1, "read_priority.changed-meanwhile")


def test_a_broker_that_applies_a_policy_later_is_observed_again() -> None:
    admin = Admin(RAW)
    admin.changed = RAW
    found, _ = execute(admin, change(admin, Purpose.DECLARE, FIRST))
    assert found.change is not None
    assert found.change.stage is ChangeStage.ORDERED


@pytest.mark.parametrize(
    ("error", "stage", "switched"),
    [
        (Refused("a", "412", "c"), ChangeStage.REFUSED, False),
        (Retry("a", "503", "c"), ChangeStage.REFUSED, False),
        (Unknown("a", "no response", "c"), ChangeStage.ORDERED, True),
    ],
)
def test_only_a_write_that_may_have_happened_is_remembered_as_a_switch(
    error: TrueupError, stage: ChangeStage, switched: bool
) -> None:
    admin = Admin(RAW)
    admin.fails = error
    found, _ = execute(admin, change(admin, Purpose.SWITCH, FIRST))
    assert (found.change and found.change.stage, found.switch is not None) == (stage, switched)


@pytest.mark.parametrize("error", [None, Unknown("a", "no response", "c"), Refused("a", "404", "c")])
def test_a_topic_is_unloaded_at_most_once(error: TrueupError | None) -> None:
    admin = Admin(RAW)
    admin.fails = error
    found, _ = execute(admin, change(admin, Purpose.UNLOAD, None), PriorityState(switch=Switch(None, FIRST, NOW)))
    assert (admin.unloads, found.switch and found.switch.unloaded) == ([TARGET], True)


@pytest.mark.parametrize(
    "kept",
    [
        PriorityState(
            Change(TARGET, Purpose.DECLARE, FIRST, stage=ChangeStage.APPROVED, rule="r", detail="d", plain="p")
        ),
        PriorityState(None, Switch(None, FIRST, NOW, "made", unloaded=True)),
        PriorityState(Change(TARGET, Purpose.RETURN, None, FIRST, ChangeStage.ORDERED), Switch(LAST, FIRST, NOW)),
    ],
)
def test_what_is_remembered_survives_the_journal(kept: PriorityState) -> None:
    assert kept_of(decode(PRIORITIES, encode(PRIORITIES, record_of(TARGET, kept)))) == (TARGET, kept)


def test_nothing_remembered_is_no_record() -> None:
    assert record_of(TARGET, PriorityState(stalls=3)) is None
