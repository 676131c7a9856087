"""For any sequence of observations: no bookie is lost before the grace period ends, and settling is idempotent."""

from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from trueup.state.bookkeeper.membership import MembershipPolicy, settle
from trueup.state.bookkeeper.observations import Sighting
from trueup.state.bookkeeper.topology import Status

NAMES = ("b1", "b2", "b3", "b4", "b5")
GRACE_MS = 100
looks = st.lists(
    st.tuples(
        st.integers(0, 80),
        st.fixed_dictionaries({name: st.sampled_from(["writable", "writable", "readonly", ""]) for name in NAMES}),
    ),
    min_size=1,
    max_size=12,
)
policies = st.builds(MembershipPolicy, st.just(GRACE_MS), st.sampled_from([0.3, 0.6, 1.0]))


def _play(steps, policy):
    """Time, sightings, settled state and previous state of every step."""
    now_ms, before = 0, None
    for wait, seen in steps:
        now_ms += wait
        sightings = [Sighting(name, "/r", registered, True, 1) for name, registered in seen.items()]
        settled = settle(sightings, before, policy, now_ms)
        yield now_ms, sightings, settled, before
        before = settled.topology


@given(looks, policies)
def test_no_bookie_is_lost_before_the_grace_has_passed(steps, policy):
    last_seen = dict.fromkeys(NAMES, 0)
    for now_ms, sightings, settled, _ in _play(steps, policy):
        last_seen.update({s.bookie: now_ms for s in sightings if s.registered})
        lost = [b.id for b in settled.topology.bookies if b.status is Status.LOST]
        assert all(now_ms - last_seen[name] >= GRACE_MS for name in lost)


@given(looks, policies)
def test_a_registered_bookie_is_not_lost(steps, policy):
    for _, sightings, settled, _ in _play(steps, policy):
        here = {s.bookie for s in sightings if s.registered}
        alive = {b.id for b in settled.topology.bookies if b.status in (Status.WRITABLE, Status.READONLY)}
        assert alive == here


@given(looks, policies)
def test_the_same_again_changes_nothing(steps, policy):
    for now_ms, sightings, settled, _ in _play(steps, policy):
        assert not settle(sightings, settled.topology, policy, now_ms).changed


@given(looks, policies)
def test_epochs_rise_with_each_change_only(steps, policy):
    for _, _, settled, before in _play(steps, policy):
        assert (settled.topology.epoch > (before.epoch if before else 0)) is settled.changed


@given(looks, policies)
def test_a_hold_delays_no_observation(steps, policy):
    unheld = [settled.topology.bookies for _, _, settled, _ in _play(steps, replace(policy, hold_share=1.0))]
    states = [settled.topology.bookies for _, _, settled, _ in _play(steps, policy)]
    assert [[(b.id, b.status, b.since_ms) for b in each] for each in states] == [
        [(b.id, b.status, b.since_ms) for b in each] for each in unheld
    ]


@given(looks, policies)
def test_what_became_lost_in_a_hold_is_held_until_it_ends(steps, policy):
    for _, _, settled, before in _play(steps, policy):
        was = {b.id for b in before.bookies if b.status is Status.LOST and not b.held} if before else set()
        unheld = {b.id for b in settled.topology.bookies if b.status is Status.LOST and not b.held}
        held = {b.id for b in settled.topology.bookies if b.held}
        assert (unheld <= was and held) if settled.topology.held else not held


@given(looks, policies)
def test_the_end_of_a_grace_is_always_announced(steps, policy):
    for now_ms, sightings, settled, _ in _play(steps, policy):
        waits = any(b.status is Status.PENDING for b in settled.topology.bookies)
        assert (settled.next_ms is not None) == waits
        if settled.next_ms is not None:
            assert settle(sightings, settled.topology, policy, max(now_ms, settled.next_ms)).changed
