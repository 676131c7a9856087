import pickle

import pytest

from tests.configuration import parse
from trueup.state.common.errors import BadSettings
from trueup.state.placement.settings import PlacementSettings
from trueup.state.settings.settings import change

GOOD = {"cluster": {"zookeeper": "127.0.0.1:2181"}}


def problems(raw: object) -> list[str]:
    with pytest.raises(BadSettings) as caught:
        parse(raw)  # type: ignore[arg-type]
    return list(caught.value.problems)


def test_only_the_zookeeper_address_is_needed():
    assert parse(GOOD).section(PlacementSettings).mode == "observe"


def test_a_missing_address_is_named_with_what_was_expected():
    assert problems({})[0].startswith("cluster.zookeeper: expected ZooKeeper servers")


def test_settings_reach_other_processes():
    settings = parse({**GOOD, "placement": {"mode": "approve"}})
    assert pickle.loads(pickle.dumps(settings)).section(PlacementSettings) == settings.section(PlacementSettings)


def test_every_problem_is_reported_at_once():
    raw = {"cluster": {"zookeeper": 3}, "placement": {"mode": "go", "hold_share": 2}, "sparc": {}}
    assert [p.split(":")[0] for p in problems(raw)] == [
        "sparc",
        "cluster.zookeeper",
        "placement.mode",
        "placement.hold_share",
    ]


def test_a_number_where_truth_is_wanted_is_refused():
    assert problems({**GOOD, "placement": {"paused": 1}}) == ["placement.paused: expected true or false; found 1"]


def test_a_script_source_needs_its_path():
    assert problems({**GOOD, "racks": {"source": "script"}})[0].startswith("racks.script: expected the path")


def test_a_live_mode_needs_the_same_keys_as_in_the_file():
    with pytest.raises(BadSettings, match=r"deletion\.instance: expected the INSTANCEID"):
        change(parse({**GOOD, "deletion": {"owners": "operator"}}), "deletion.mode", "enforce")


def test_a_live_key_changes_and_takes_text_from_a_command_line():
    assert change(parse(GOOD), "placement.grace_s", "2.5").section(PlacementSettings).grace_s == 2.5


def test_a_fixed_key_does_not_change_while_running():
    with pytest.raises(BadSettings, match=r"spark\.buckets: expected a live key"):
        change(parse(GOOD), "spark.buckets", 8)


def test_a_live_key_out_of_bounds_is_refused():
    with pytest.raises(BadSettings, match=r"placement\.max_marks: expected a whole number, at least 0, .*; found -1"):
        change(parse(GOOD), "placement.max_marks", "-1")


def test_nothing_is_deleted_without_knowing_the_cluster():
    with pytest.raises(BadSettings) as caught:
        parse({"cluster": {"zookeeper": "h:2181"}, "deletion": {"owners": "pulsar", "mode": "enforce"}})
    assert [problem.partition(":")[0] for problem in caught.value.problems] == [
        "deletion.instance",
        "deletion.exclusive",
    ]


def test_owners_of_ledgers_need_their_cluster():
    with pytest.raises(BadSettings, match=r"deletion\.owners: expected none without cluster\.zookeeper"):
        parse(
            {
                "kafka": {"east": {"bootstrap": "e:9092", "bit": 0}},
                "logdirs": {"east": {}},
                "deletion": {"owners": "pulsar"},
            }
        )


def test_the_nearest_key_is_named():
    (found,) = problems({**GOOD, "placement": {"max_mark": 5}})
    assert found.endswith("; did you mean max_marks?")
