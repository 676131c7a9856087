"""Every command that queries the running application, against an HTTP server with an in-memory cluster."""

import json
from typing import Any

import pytest

from tests.unit.cli.conftest import CommandResult, Run
from tests.unit.cli.fake_engine import FakeEngine
from trueup.state.common.errors import Refused, Retry
from trueup.state.settings.settings import value_of
from trueup.streams import catalog
from trueup.streams.terminal import out
from trueup.streams.terminal.out import Column


def rows(done: CommandResult) -> list[list[str]]:
    """The lines of a table, split into words."""
    return [line.split() for line in done.out.splitlines()]


def test_status_shows_why_it_is_not_healthy(run: Run) -> None:
    done = run("status")
    assert (done.code, done.out.splitlines()[:3]) == (
        1,
        [
            "Needs attention",
            "  - 1 ledger without a live copy of some entries",
            "  - 17 ledgers drifted, the oldest for 4m",
        ],
    )


def test_status_counts_bookies(run: Run) -> None:
    assert "Bookies  4 writable, 1 readonly, 1 lost" in run("status").out


def test_status_before_a_bookie_was_seen(run: Run, engine: FakeEngine) -> None:
    engine.state["bookies"] = {}
    assert "Bookies  not observed yet" in run("status").out


def test_status_of_a_healthy_cluster_is_fine(run: Run, engine: FakeEngine) -> None:
    engine.state = FakeEngine().state
    assert run("status").code == 0


def test_status_waits_until_it_is_healthy(run: Run, engine: FakeEngine) -> None:
    engine.upcoming = [engine.state, engine.state, FakeEngine().state]
    assert run("status", "--wait", "30").code == 0


def test_status_in_json_has_the_health(run: Run) -> None:
    found = json.loads(run("status", "-o", "json").out)
    assert (found["health"], found["counts"]["drifted"]) == ("attention", 17)


@pytest.mark.parametrize(
    ("words", "chosen"),
    [
        (("findings", "--bookie", "b1:3181"), ["7", "21"]),
        (("findings", "--bookie", "b1:3181", "--namespace", "public/billing"), ["21"]),
        (("ledgers", "--bookie", "b1:3181"), ["7", "21"]),
        (("ledgers", "--namespace", "public/billing"), ["21"]),
        (("ledgers", "--unreferenced", "--namespace", "public/old"), ["30"]),
        (("deletions", "--namespace", "public/default"), ["21", "20"]),
    ],
    ids=" ".join,
)
def test_lists_are_selected(run: Run, engine: FakeEngine, words: tuple[str, ...], chosen: list[str]) -> None:
    engine.forgotten().places = {7: ("b1:3181", "public/default"), 21: ("b1:3181", "public/billing")}
    assert [line[0] for line in rows(run("get", *words))[1:]] == chosen


def test_a_selection_without_ledgers_does_not_say_that_all_are_true(run: Run) -> None:
    assert run("get", "ledgers", "--bookie", "b9:3181").out == "No ledgers.\n"


def test_a_selector_that_a_stream_does_not_know_is_refused(run: Run) -> None:
    done = run("get", "findings", "--stream", "logdirs", "--bookie", "b1:3181")
    assert (done.code, "selectors of the stream logdirs: none" in done.err) == (2, True)


def test_findings_are_one_row_each_riskiest_first(run: Run) -> None:
    lines = rows(run("get", "findings"))
    assert lines[0] == ["LEDGER", "VERDICT", "RULE", "COPIES", "RACKS", "REPAIR", "SINCE", "REASON"]
    assert [line[:3] for line in lines[1:3]] == [["7", "blocked", "all-copies-lost"], ["21", "drifted", "lost-member"]]


def test_findings_of_one_rule_by_its_short_name(run: Run) -> None:
    assert [
        row["ledger"] for row in json.loads(run("get", "findings", "--rule", "cannot-adhere", "-o", "json").out)
    ] == [300]


def test_an_unknown_rule_is_a_usage_error(run: Run) -> None:
    done = run("get", "findings", "--rule", "nope")
    assert (done.code, "expected rule to be one of" in done.err) == (2, True)


def test_an_empty_list_of_findings_is_shown_as_such(run: Run) -> None:
    done = run("get", "findings", "--rule", "default-rack")
    assert (done.code, done.out.startswith("No findings")) == (0, True)


def test_ledgers_are_those_that_are_not_true(run: Run, engine: FakeEngine) -> None:
    assert len(rows(run("get", "ledgers"))) == 1 + len(engine.judged)


LISTS = [
    (("get", "findings"), "findings"),
    (("get", "ledgers"), "ledgers"),
    (("get", "ledgers", "--all"), "all ledgers"),
    (("get", "ledgers", "--unreferenced"), "unreferenced"),
    (("get", "bookies"), "bookies"),
    (("get", "marks"), "marks"),
    (("get", "deletions"), "deletions"),
    (("get", "links"), "links"),
    (("get", "dirs"), "directories"),
    (("get", "actions"), "actions"),
    (("plan",), "plan"),
]


@pytest.mark.parametrize(("words", "noun"), LISTS)
def test_a_possibly_incomplete_list_is_marked(run: Run, engine: FakeEngine, words: tuple[str, ...], noun: str) -> None:
    engine.lacking[noun] = "6 of 6 ledgers not judged yet"
    done = run(*words)
    assert (done.code, done.out.splitlines()[-1]) == (6, "This list may be incomplete: 6 of 6 ledgers not judged yet")


@pytest.mark.parametrize(("words", "noun"), LISTS)
def test_no_script_takes_a_list_that_may_be_incomplete_for_the_whole(
    run: Run, engine: FakeEngine, words: tuple[str, ...], noun: str
) -> None:
    engine.lacking[noun] = "6 of 6 ledgers not judged yet"
    done = run(*words, "-o", "json")
    assert (done.code, json.loads(done.out)["incomplete"]) == (6, "6 of 6 ledgers not judged yet")


def test_an_empty_list_that_may_be_incomplete_does_not_reassure(run: Run, engine: FakeEngine) -> None:
    engine.judged, engine.lacking = [], {"findings": "the view is not complete yet"}
    assert run("get", "findings").out.splitlines()[0] == "No data is available."


def test_a_truncated_list_shows_the_total(run: Run, engine: FakeEngine) -> None:
    engine.judged = [engine.judged[0] | {"ledger": ledger} for ledger in range(1_026)]
    assert run("get", "findings").out.splitlines()[-1] == "100 of 1,026; --limit shows more."


def test_a_list_that_is_cut_stays_an_array_in_json(run: Run, engine: FakeEngine) -> None:
    engine.judged = [engine.judged[0] | {"ledger": ledger} for ledger in range(1_026)]
    done = run("get", "findings", "-o", "json")
    assert (len(json.loads(done.out)), json.loads(done.err)) == (100, {"shown": 100, "total": 1026})


@pytest.mark.parametrize(("waits", "code"), [(12, 0), (13, 1)])
def test_ready_is_not_content_while_more_than_a_few_are_not_judged(
    run: Run, engine: FakeEngine, waits: int, code: int
) -> None:
    engine.state = FakeEngine().state | {"not_judged": waits}
    assert run("status", "--ready").code == code


def test_status_shows_the_auditor(run: Run, engine: FakeEngine) -> None:
    engine.state = FakeEngine().state | {"unbound": "ar1 holds the Auditor's vote"}
    assert "Auditor  ar1 holds the Auditor's vote" in run("status").out


def test_all_ledgers(run: Run) -> None:
    assert rows(run("get", "ledgers", "--all"))[-1][:5] == ["1", "true", "adheres", "closed", "3/2"]


def test_limit(run: Run) -> None:
    assert len(rows(run("get", "ledgers", "--limit", "3"))) == 4


def test_bookies(run: Run) -> None:
    assert rows(run("get", "bookies"))[5][:3] == ["127.0.0.5:3181", "/rack2", "lost"]


def test_ledgers_on_a_bookie_are_shown_when_counted(run: Run, engine: FakeEngine) -> None:
    engine.members[0]["ledgers"] = 12
    assert "LEDGERS" in run("get", "bookies").out


def test_marks(run: Run) -> None:
    assert rows(run("get", "marks"))[1][:5] == ["21", "ours", "drifted", "working", "ar1"]


def test_actions(run: Run) -> None:
    assert rows(run("get", "actions"))[1][:4] == ["repair-21-v3", "21", "working", "lost-member"]


def test_ledger_0_is_an_id_like_others(run: Run, engine: FakeEngine) -> None:
    engine.done[0]["ledger"] = 0
    assert rows(run("get", "actions"))[1][:2] == ["repair-21-v3", "0"]


@pytest.mark.parametrize("what", ["findings", "ledgers", "bookies", "marks", "links", "actions"])
def test_json_is_the_response_of_the_api(run: Run, engine: FakeEngine, what: str) -> None:
    asked: dict[str, tuple[Any, ...]] = {"findings": (None, None, 100), "ledgers": (100, False), "actions": (50,)}
    assert json.loads(run("get", what, "-o", "json").out) == getattr(engine, what)(*asked.get(what, ()))


@pytest.mark.parametrize(
    ("what", "sentence"),
    [
        ("links", "No links are declared"),
        ("ledgers", "Every ledger is true"),
        ("marks", "No ledger is marked"),
        ("actions", "No actions have been executed"),
        ("bookies", "No bookie has ever registered"),
        ("findings", "No findings"),
    ],
)
def test_an_empty_list_is_described_in_words(run: Run, engine: FakeEngine, what: str, sentence: str) -> None:
    engine.judged, engine.members, engine.done = [], [], []
    assert run("get", what).out.startswith(sentence)


def test_nothing_in_json_is_an_empty_list(run: Run, engine: FakeEngine) -> None:
    engine.judged = []
    assert json.loads(run("get", "ledgers", "-o", "json").out) == []


def test_describe_shows_evidence_and_what_would_change_it(run: Run) -> None:
    done = run("describe", "ledger", "21").out
    wanted = [
        "placement.lost-member",
        "127.0.0.5:3181  /rack2  lost",
        "window 127.0.0.1:3181 127.0.0.5:3181: /rack1",
        "every attempt succeeds",
        "the return of 127.0.0.5:3181",
        "ours, held by ar1",
    ]
    assert [words for words in wanted if words not in done] == []


def test_describe_shows_a_window_once(run: Run) -> None:
    assert run("describe", "ledger", "21").out.count("  window ") == 1


def test_describe_a_ledger_that_is_not_there(run: Run) -> None:
    done = run("describe", "ledger", "5")
    assert (done.code, done.out, done.err.splitlines()[0]) == (5, "", "error:  expected a ledger 5")


def test_describe_demands_a_number(run: Run) -> None:
    assert run("describe", "ledger", "x").code == 2


def test_plan_exits_with_three_when_it_holds_changes(run: Run) -> None:
    done = run("plan")
    assert (done.code, rows(done)[1][:8]) == (
        3,
        ["repair-21-v3", "mark", "lost-member", "21", "1", "1", "working", "-"],
    )


def test_a_plan_shows_its_reason(run: Run, engine: FakeEngine) -> None:
    assert engine.plan()[0]["reason"] in run("plan").out


def test_an_empty_plan_is_fine(run: Run, engine: FakeEngine) -> None:
    engine.judged = []
    done = run("plan")
    assert (done.code, done.out) == (0, "Nothing to do.\n")


def test_a_plan_in_json_keeps_its_exit_code(run: Run) -> None:
    done = run("plan", "-o", "json")
    assert (done.code, json.loads(done.out)[0]["requirements"]) == (3, {"version": 3, "epoch": 4})


def test_approve_one(run: Run, engine: FakeEngine) -> None:
    done = run("approve", "repair-100-v3")
    assert (done.code, engine.approved) == (0, ["repair-100-v3"])


def test_approve_all(run: Run, engine: FakeEngine) -> None:
    run("approve", "--all")
    assert len(engine.approved) == 16


def test_approve_nothing_is_a_usage_error(run: Run) -> None:
    assert [run("approve").code, run("approve", "--all", "repair-100-v3").code] == [2, 2]


def test_a_stale_approval_is_refused(run: Run, engine: FakeEngine) -> None:
    done = run("approve", "repair-100-v2")
    assert (done.code, engine.approved, "trueup plan" in done.err) == (5, [], True)


def test_delete_without_the_flag_yes_only_shows_the_ledger(run: Run) -> None:
    done = run("delete", "ledger", "100")
    assert (done.code, "--yes" in done.out, "closed" in done.out) == (3, True, True)


def test_delete_reports_that_it_is_not_confirmed_yet(run: Run) -> None:
    done = run("delete", "ledger", "100", "--yes", "--wait", "0", "-o", "json")
    assert (done.code, json.loads(done.out)["rule"]) == (4, "deletion.ordered")


def test_delete_of_what_may_not_go(run: Run) -> None:
    done = run("delete", "ledger", "101", "--yes")
    assert (done.code, "a closed ledger" in done.err) == (5, True)


def test_links(run: Run, engine: FakeEngine) -> None:
    engine.linked()
    found = rows(run("get", "links"))[1][:9]
    assert found == ["east-west", "east", "west", "enforce", "up", "batches", "2", "1", "1,200"]


def test_describe_a_link_shows_partitions_groups_and_problems(run: Run, engine: FakeEngine) -> None:
    engine.linked()
    done = run("describe", "link", "east-west").out
    wanted = [
        "east-west, east to west",
        "up, mode enforce",
        "1,200 records",
        "orders-0",
        "billing",
        "orders-1: too large",
    ]
    assert [words for words in wanted if words not in done] == []


def test_describe_a_link_shows_what_heartbeats_fail_of_and_the_remedies(
    run: Run, engine: FakeEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    engine.linked()
    more = {"heartbeat_error": "target: no right", "remedies": [{"rule": "replication.down", "remedy": "Mend it."}]}
    monkeypatch.setattr(engine, "link", lambda name, link=engine.link: {**link(name), **more})
    done = run("describe", "link", "east-west").out
    assert [words for words in ("; target: no right", "replication.down: Mend it.") if words not in done] == []


def test_describe_a_link_that_is_not_there(run: Run) -> None:
    assert run("describe", "link", "nowhere").code == 5


def test_pause_and_resume_are_settings(run: Run, engine: FakeEngine) -> None:
    engine.linked()
    done = [run("link", word, "east-west").out for word in ("pause", "resume")]
    paused = value_of(engine.settings, "links.east-west.paused")
    assert (done, paused) == (["east-west is paused\n", "east-west is resumed\n"], False)


def test_pause_and_resume_of_a_topic(run: Run, engine: FakeEngine) -> None:
    engine.linked()
    paused = run("link", "pause", "east-west", "--topic", "orders").out
    during = value_of(engine.settings, "links.east-west.paused_topics")
    resumed = run("link", "resume", "east-west", "--topic", "orders").out
    after = value_of(engine.settings, "links.east-west.paused_topics")
    assert (paused, during, resumed, after) == ("orders is paused\n", ["orders"], "orders is resumed\n", [])


def test_pause_of_a_topic_that_the_link_does_not_copy(run: Run, engine: FakeEngine) -> None:
    engine.linked()
    assert run("link", "pause", "east-west", "--topic", "other").code == 5


def test_a_topic_that_an_expression_pauses_is_not_resumed_alone(run: Run, engine: FakeEngine) -> None:
    engine.linked()
    run("config", "set", "links.east-west.paused_topics", "/or.*/")
    assert run("link", "resume", "east-west", "--topic", "orders").code == 5


def test_topics_of_links(run: Run, engine: FakeEngine) -> None:
    engine.linked()
    assert rows(run("get", "topics"))[1] == [
        "orders",
        "east-west",
        "orders",
        "stopped",
        "2",
        "1",
        "200",
        "1m5s",
        "too",
        "large",
    ]


def test_a_fixed_key_needs_a_restart(run: Run) -> None:
    done = run("config", "set", "data_dir", "elsewhere")
    assert (done.code, "needs a restart" in done.err) == (5, True)


def test_pause_of_a_link_that_is_not_there(run: Run) -> None:
    assert run("link", "pause", "nowhere").code == 5


def test_config_get_lists_live_keys(run: Run) -> None:
    assert ["placement.mode", "observe", "observe"] in [line[:3] for line in rows(run("config", "get"))]


def test_config_get_of_one_key_is_its_value(run: Run) -> None:
    assert run("config", "get", "placement.paused").out == "false\n"


def test_config_get_of_a_fixed_key(run: Run) -> None:
    assert run("config", "get", "cluster.zookeeper").out == "127.0.0.1:2181\n"


def test_config_get_of_an_unknown_key(run: Run) -> None:
    assert run("config", "get", "placement.mod").code == 2


def test_config_set(run: Run, engine: FakeEngine) -> None:
    done = run("config", "set", "placement.max_marks", "50")
    assert (done.out, value_of(engine.settings, "placement.max_marks")) == ("placement.max_marks is 50\n", 50)


def test_config_set_back_to_the_file(run: Run, engine: FakeEngine) -> None:
    run("config", "set", "placement.max_marks", "50")
    assert run("config", "set", "placement.max_marks", "--default").out == "placement.max_marks is 200\n"


def test_config_set_of_a_bad_value_shows_what_is_expected(run: Run) -> None:
    done = run("config", "set", "placement.mode", "loud")
    assert (done.code, "expected one of observe, approve, enforce; found 'loud'" in done.err) == (2, True)


def test_config_set_of_a_key_that_is_not_live(run: Run) -> None:
    done = run("config", "set", "http/../port", "1")
    assert (done.code, done.out) == (5, "")


def test_config_set_of_a_number_below_zero_is_no_option(run: Run) -> None:
    done = run("config", "set", "placement.max_marks", "-1")
    assert (
        done.code,
        "placement.max_marks: expected a whole number, at least 0, at most 2147483647; found -1" in done.err,
    ) == (2, True)


def test_config_set_without_value(run: Run) -> None:
    assert run("config", "set", "placement.mode").code == 2


def test_errors_of_the_application_keep_their_text(run: Run, engine: FakeEngine) -> None:
    engine.fail = Retry("the journal to answer", "no broker", "look at the journal")
    done = run("get", "findings")
    assert (done.code, done.err.split("\n")) == (
        4,
        [
            "error:  expected the journal to answer",
            "        found    no broker",
            "        to do    look at the journal",
            "",
        ],
    )


def test_errors_are_json_for_programs(run: Run, engine: FakeEngine) -> None:
    engine.fail = Refused("a ledger", "no such ledger", "see `trueup get ledgers --all`")
    done = run("get", "bookies", "-o", "json")
    wanted = {"expected": "a ledger", "found": "no such ledger", "todo": "see `trueup get ledgers --all`", "code": 5}
    assert (done.out, json.loads(done.err)) == ("", {"error": wanted})


def test_wrong_usage_is_json_for_programs(run: Run) -> None:
    assert json.loads(run("get", "nothing", "--output=json").err)["error"]["code"] == 2


def test_an_unknown_key_is_wrong_usage_and_the_nearest_is_named(run: Run) -> None:
    done = run("config", "get", "placement.mod")
    assert (done.code, "did you mean placement.mode?" in done.err) == (2, True)


def test_before_the_first_observation_that_is_shown(run: Run, engine: FakeEngine) -> None:
    engine.state["ready"] = False
    engine.fail = Refused("an observation of the bookies", "none yet", "wait")
    assert run("get", "bookies").code == 4


def test_tables_fit_a_terminal(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "100")
    commands = (
        ["get", "findings"],
        ["get", "ledgers"],
        ["get", "bookies"],
        ["get", "marks"],
        ["get", "actions"],
        ["plan"],
        ["config", "get"],
        ["status"],
        ["explain"],
    )
    wide = [(words, line) for words in commands for line in run(*words).out.splitlines() if len(line) > 100]
    assert wide == []


def test_a_narrow_terminal_keeps_one_line_for_each_row(
    run: Run, engine: FakeEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    assert len(run("get", "findings").out.splitlines()) == 1 + len(engine.judged)


def test_what_is_cut_ends_with_an_ellipsis(run: Run, engine: FakeEngine, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    engine.judged[0]["reason"] = "word " * 60
    assert run("get", "findings").out.splitlines()[1].endswith("\u2026")


def test_of_two_columns_that_clip_neither_vanishes(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    columns = [Column("A", lambda r: r["a"]), *(Column(n, lambda r: r["b"], clips=True) for n in ("B", "C"))]
    out.table([{"a": "x" * 30, "b": "y" * 90}], columns, "")
    head, line = capsys.readouterr().out.splitlines()
    assert (head.split(), line.count("\u2026"), len(line) <= 80) == (["A", "B", "C"], 2, True)


def test_an_id_is_never_cut(run: Run, engine: FakeEngine, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "40")
    engine.judged[0]["ledger"] = (1 << 63) - 1
    assert rows(run("get", "findings"))[1][0] == "9223372036854775807"


def test_piped_tables_have_one_line_for_each_row(run: Run, engine: FakeEngine) -> None:
    engine.judged[0]["reason"] = "word " * 60
    assert len(run("get", "findings").out.splitlines()) == 1 + len(engine.judged)


def test_no_colour_goes_into_a_pipe(run: Run) -> None:
    assert "\x1b" not in run("status").out + run("get", "findings").out


def test_explain_lists_every_rule(run: Run) -> None:
    assert [line[0] for line in rows(run("explain"))[1:]] == [rule.id for rule in catalog.rules()]


@pytest.mark.parametrize("rule", [rule.id for rule in catalog.rules()])
def test_explain_shows_why_and_remedy(run: Run, rule: str) -> None:
    found = catalog.rules().find(rule)
    assert found
    done = " ".join(run("explain", rule).out.split())
    assert [text for text in (found.why, found.remedy) if text not in done] == []


def test_explain_by_short_name(run: Run) -> None:
    assert run("explain", "too-few-racks").out.startswith("placement.too-few-racks: drifted\n")


def test_explain_a_misspelt_rule_names_its_neighbours(run: Run) -> None:
    done = run("explain", "too-few-rack")
    assert (done.code, "near: too-few-racks" in done.err) == (2, True)


def test_log_directories(run: Run, engine: FakeEngine) -> None:
    engine.shelved()
    found = rows(run("get", "dirs"))
    assert [line[:1] + line[1:2] + line[6:7] for line in found[1:]] == [
        ["east/1", "/small", "95%"],
        ["east/1", "/large", "35%"],
    ]


def test_describe_a_broker_shows_directories_moves_and_replicas(run: Run, engine: FakeEngine) -> None:
    engine.shelved()
    done = run("describe", "broker", "east/1").out
    assert all(word in done for word in ("60.0%, 10.0% after the plan", "cordoned", "awaiting approval", "orders-0"))


@pytest.mark.parametrize(("broker", "code"), [("east/9", 5), ("east", 2)])
def test_describe_a_broker_that_is_not_there(run: Run, engine: FakeEngine, broker: str, code: int) -> None:
    engine.shelved()
    assert run("describe", "broker", broker).code == code


def test_a_plan_shows_moves_and_their_effect(run: Run, engine: FakeEngine) -> None:
    engine.shelved()
    assert "10 GiB from /small to /large; skew 60%, then 40%" in run("plan").out


def test_a_topic_is_made_in_chosen_directories(run: Run, engine: FakeEngine) -> None:
    done = run("topic", "create", "east", "orders", "--partitions", "2", "--config", "retention.ms=-1")
    assert (len(rows(done)), engine.topics) == (3, [("east", "orders", 2, 1, {"retention.ms": "-1"})])


def test_a_setting_of_a_topic_that_is_none(run: Run) -> None:
    assert run("topic", "create", "east", "orders", "--config", "retention.ms").code == 2
