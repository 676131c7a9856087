"""Health and its reasons; missing information is not healthy."""

from typing import Any

import pytest

from tests.unit.cli.fake_engine import FakeEngine
from tests.unit.cli.fake_rows import healthy_status, link_row
from trueup.streams.health import health
from trueup.streams.web.engine import VERDICTS


def test_healthy() -> None:
    assert (health(healthy_status()).level, health(healthy_status()).reasons) == ("healthy", ())


def test_a_start_shows_how_far_it_is() -> None:
    counts = {"true": 0, "drifted": 0, "blocked": 0, "unknown": 1204}
    status = healthy_status() | {"ready": False, "starting": True, "counts": counts, "not_judged": 1000}
    assert (health(status).level, health(status).line) == ("starting", "Starting: 204 of 1,204 ledgers judged")


def test_a_start_that_watches_no_ledgers_counts_none() -> None:
    status = healthy_status() | {"ready": False, "starting": True, "watches_ledgers": False, "ledgers": 0}
    assert health(status).line == "Starting"


def test_lost_data_are_named() -> None:
    assert "2 ledgers without a live copy of some entries" in health(healthy_status() | {"without_copies": 2}).reasons


def test_few_that_are_not_judged_are_in_the_headline() -> None:
    status = healthy_status() | {"not_judged": 4}
    status["counts"] |= {"true": 1200, "unknown": 4}
    assert health(status).line == "Healthy: 1,200 ledgers true, 4 not judged yet"


def test_a_hold_that_does_not_bind_the_auditor_is_no_hold() -> None:
    status = healthy_status() | {"held": "4 of 6 bookies went", "unbound": "ar1 holds the vote"}
    assert health(status).line == "Held by Trueup; BookKeeper's Auditor is not bound"


def test_in_observe_the_vote_is_left_to_others() -> None:
    assert health(healthy_status() | {"unbound": "mode observe"}).level == "healthy"


def test_drift_needs_attention() -> None:
    assert health(FakeEngine().drill().state).level == "attention"


@pytest.mark.parametrize(
    ("change", "level", "word"),
    [
        ({"ready": False, "problems": ["the view is not complete yet"]}, "blind", "not complete"),
        ({"ready": False}, "blind", "not ready"),
        ({"counts": {"true": 0, "drifted": 0, "blocked": 0, "unknown": 9}, "ledgers": 9}, "blind", "which is all"),
        (
            {"counts": {"true": 8, "drifted": 0, "blocked": 0, "unknown": 1}, "ledgers": 9},
            "attention",
            "1 ledger unknown",
        ),
        ({"not_judged": 9, "counts": dict.fromkeys(VERDICTS, 0) | {"unknown": 9}, "ledgers": 9}, "attention", "9 of 9"),
        ({"not_judged": 13}, "attention", "13 of 1,204 ledgers not judged yet"),
        ({"unbound": "ar1 holds the vote", "mode": "approve"}, "attention", "ar1 holds"),
        ({"unbound": "ar1 holds the vote", "mode": "enforce", "held": "4 of 6 went"}, "held", "ar1 holds"),
        ({"held": "4 of 6 bookies went at once"}, "held", "4 of 6"),
        ({"problems": ["config record refused"]}, "attention", "refused"),
    ],
)
def test_one_thing_wrong_is_enough(change: dict[str, Any], level: str, word: str) -> None:
    result = health(healthy_status() | change)
    assert (result.level, word in " ".join(result.reasons)) == (level, True)


@pytest.mark.parametrize(("state", "level"), [("down", "blind"), ("slow", "attention")])
def test_a_silent_source_counts(state: str, level: str) -> None:
    status = healthy_status()
    status["sources"][0]["state"] = state
    assert health(status).level == level


@pytest.mark.parametrize(("state", "level"), [("up", "healthy"), ("paused", "healthy"), ("stalled", "attention")])
def test_links_count(state: str, level: str) -> None:
    status = healthy_status() | {"links": [link_row("east-west", state=state)]}
    assert health(status).level == level


def test_links_without_ledgers_are_what_is_healthy() -> None:
    status = healthy_status() | {"links": [link_row("east-west")], "watches_ledgers": False}
    assert health(status).line == "Healthy: 1 link up"


def test_a_failed_stream_counts() -> None:
    status = healthy_status()
    status["streams"][0] |= {"state": "failed", "error": "boom"}
    assert health(status).reasons == ("stream placement failed: boom",)


def test_a_reason_is_reported_once() -> None:
    status = healthy_status() | {"ready": False, "problems": ["one", "one"]}
    assert health(status).reasons == ("one",)


def test_a_dead_cluster_of_a_link_does_not_make_the_application_blind() -> None:
    status = healthy_status()
    status["sources"].append({"name": "link east-west", "state": "down", "age_ms": 90_000, "detail": "no answer"})
    assert health(status).level == "attention"


def test_a_source_that_was_never_observed_has_no_time() -> None:
    status = healthy_status()
    status["sources"].append({"name": "link east-west", "state": "slow", "age_ms": None, "detail": "starting"})
    assert health(status).reasons == ("link east-west is slow: starting",)


def test_a_lost_bookie_is_not_healthy() -> None:
    status = healthy_status() | {"bookies": {"lost": ["b1:3181", "b2:3181", "b3:3181", "b4:3181"]}}
    assert health(status).reasons == ("4 bookies lost: b1:3181, b2:3181, b3:3181 and 1 more",)


def dead(*links: str) -> dict[str, Any]:
    """The status while the cluster west, the target of these links, does not respond."""
    status = healthy_status()
    down, result = {"west": "timed out"}, "the target does not respond: timed out"
    status["links"] = [link_row(name, state="down", down=down, reason=result) for name in links]
    status["sources"] += [
        {"name": f"link {name}", "state": "down", "age_ms": 9, "detail": "timed out"} for name in links
    ]
    return status


def test_an_unreachable_cluster_is_reported_once_by_its_name() -> None:
    result = health(dead("east-west", "north-west") | {"problems": ["link east-west: timed out"]})
    assert result.reasons == ("cluster west does not respond, links east-west, north-west: timed out",)


def test_a_problem_of_a_stream_is_reported_once() -> None:
    status = healthy_status() | {"problems": ["placement failed 3 times: boom"]}
    status["streams"][0] |= {"state": "failed", "error": "boom"}
    assert health(status).reasons == ("placement failed 3 times: boom",)
