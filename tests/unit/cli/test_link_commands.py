"""trueup link reset and trueup link refill."""

from tests.unit.cli.conftest import Run
from tests.unit.cli.fake_engine import FakeEngine
from tests.unit.cli.test_cli import rows


def test_a_reset_of_many_partitions_is_brief(run: Run, engine: FakeEngine) -> None:
    row = {"was": 0, "reason": "", "gone": False}
    engine.reset_link = lambda **_: [{"partition": f"orders-{n}", "offset": n, **row} for n in range(500)]  # type: ignore[method-assign]
    assert len(run("link", "reset", "east-west", "--to", "earliest", "--yes").out.splitlines()) == 12


def test_a_reset_that_leaves_out_a_partition_is_no_success_and_names_it(run: Run, engine: FakeEngine) -> None:
    reasons = {499: "its offsets are not known"}
    engine.reset_link = lambda **_: [  # type: ignore[method-assign]
        {
            "partition": f"orders-{n}",
            "offset": -1 if n in reasons else n,
            "was": 0,
            "reason": reasons.get(n, ""),
            "gone": False,
        }
        for n in range(500)
    ]
    done = run("link", "reset", "east-west", "--to", "earliest", "--yes")
    assert (done.code, [row for row in rows(done) if row[:1] == ["orders-499"]]) == (
        4,
        [["orders-499", "-", "0", *reasons[499].split()]],
    ), done


def test_a_reset_without_the_partitions_of_a_topic_that_is_gone_is_a_success(run: Run, engine: FakeEngine) -> None:
    row = {"was": 0, "reason": "east does not have the topic", "offset": -1, "gone": True}
    engine.reset_link = lambda **_: [{**row, "partition": "orders-0"}]  # type: ignore[method-assign]
    assert run("link", "reset", "east-west", "--to", "latest", "--yes").code == 0


def test_reset_of_some_partitions(run: Run, engine: FakeEngine) -> None:
    done = run("link", "reset", "east-west", "--partition", "orders-0", "--to", "earliest", "--yes")
    assert (done.code, engine.resets) == (0, [("east-west", ["orders-0"], "earliest")])


def test_reset_of_a_topic_names_its_partitions(run: Run, engine: FakeEngine) -> None:
    engine.linked()
    run("link", "reset", "east-west", "--topic", "orders", "--to", "earliest", "--yes")
    ((_, partitions, _),) = engine.resets
    assert partitions == [f"orders-{copy['partition']}" for copy in engine.link("east-west")["copies"]]


def test_reset_of_a_topic_that_the_link_does_not_copy(run: Run, engine: FakeEngine) -> None:
    engine.linked()
    done = run("link", "reset", "east-west", "--topic", "bills", "--to", "earliest", "--yes")
    assert (done.code, engine.resets) == (5, [])


def test_a_reset_is_shown_and_not_executed_without_yes(run: Run, engine: FakeEngine) -> None:
    done = run("link", "reset", "east-west", "--to", "earliest")
    assert (done.code, engine.resets, "copies 7 again" in done.out) == (3, [], True)


def test_a_refill_is_shown_and_not_begun(run: Run, engine: FakeEngine) -> None:
    done = run("link", "refill", "west-east")
    assert (done.code, engine.refills, "4,000" in done.out) == (3, [], True)


def test_a_refill_waits_until_all_of_it_is_copied(run: Run, engine: FakeEngine) -> None:
    assert "copying" in rows(run("link", "refill", "west-east", "--yes"))[1]
    assert engine.refills == ["west-east", "west-east"]


def test_a_refill_that_still_waits_is_no_success(run: Run, engine: FakeEngine) -> None:
    engine.refill_stages = ["waiting", "waiting"]
    assert run("link", "refill", "west-east", "--yes", "--wait", "0").code == 4


def test_reset_of_all(run: Run, engine: FakeEngine) -> None:
    assert len(rows(run("link", "reset", "east-west", "--to", "latest", "--yes"))) == 3
    assert engine.resets == [("east-west", None, "latest")]
