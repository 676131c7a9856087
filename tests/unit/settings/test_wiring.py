"""Validation of links: all problems together, each with key, expected and found value."""

import pytest

from tests.configuration import parse
from trueup.state.common.errors import BadSettings
from trueup.state.logdirs.settings import LogDirsSettings
from trueup.state.replication.settings import LinkSettings, Start, start_of
from trueup.state.settings.settings import Settings, all_keys, change, live_keys, value_of

EAST_WEST = {"source": "east", "target": "west", "topics": ["orders", r"/pay\..*/"]}
WEST_EAST = {**EAST_WEST, "source": "west", "target": "east"}
KAFKA = {
    "east": {"bootstrap": "e:9092", "bit": 0, "options": {"sasl.password": "secret"}},
    "west": {"bootstrap": "w:9092, w2:9092", "bit": 1},
    "north": {"bootstrap": "[::1]:9092", "bit": 31},
}


def declared(**links: object) -> Settings:
    return parse({"kafka": KAFKA, "links": {name.replace("_", "-"): link for name, link in links.items()}})


def problems(raw: object) -> list[str]:
    with pytest.raises(BadSettings) as caught:
        parse(raw)  # type: ignore[arg-type]
    return list(caught.value.problems)


def wrong(**keys: object) -> list[str]:
    return problems({"kafka": KAFKA, "links": {"east-west": {**EAST_WEST, **keys}}})


def test_links_need_no_bookkeeper():
    assert declared(east_west=EAST_WEST).cluster.zookeeper == ""


def test_a_link_copies_nothing_by_default():
    assert declared(east_west=EAST_WEST).table(LinkSettings)["east-west"].mode == "observe"


def test_without_links_and_bookkeeper_there_is_nothing_to_do():
    assert problems({"kafka": KAFKA})[0].startswith("cluster.zookeeper: expected ZooKeeper servers of the cluster")


def test_opposite_links_over_the_same_topics_are_right():
    assert list(declared(east_west=EAST_WEST, west_east=WEST_EAST).table(LinkSettings)) == ["east-west", "west-east"]


def test_every_problem_is_reported_at_once():
    raw = {
        "cluster": {"zookeeper": 3},
        "kafka": {"east": {"bootstrap": "e:1"}, "west": {"bootstrap": "w:1", "bit": 32}},
        "links": {"a": {**EAST_WEST, "copy": "some", "colour": 1}, "b": {**WEST_EAST, "start": "noon"}},
    }
    assert [problem.partition(":")[0] for problem in problems(raw)] == [
        "cluster.zookeeper",
        "kafka.east.bit",
        "kafka.west.bit",
        "links.a.colour",
        "links.a.copy",
        "links.b.start",
    ]


@pytest.mark.parametrize(
    ("keys", "problem"),
    [
        ({"source": "south"}, "source: expected one of kafka: east, west, north; found 'south'"),
        ({"target": "east"}, "target: expected another cluster than links.east-west.source; found 'east'"),
        ({"topics": ["/a(/"]}, "topics: expected a regular expression between slashes; found '/a(/': missing ): a("),
        (
            {"exclude": ["//"]},
            ("exclude: expected a regular expression between slashes; found '//': the expression is empty"),
        ),
        ({"topics": ["a b"]}, "topics: expected names that Kafka allows, or /regular expressions/; found 'a b'"),
        (
            {"topics": ["__consumer_offsets"]},
            ("topics: expected topics that applications write; found '__consumer_offsets', which is internal"),
        ),
        (
            {"rename": "copy"},
            ("rename: expected a name that Kafka allows with {topic} in it (for one topic use into); found 'copy'"),
        ),
        (
            {"rename": "{topic}{x}"},
            (
                "rename: expected a name that Kafka allows with {topic} in it (for one topic use "
                "into); found '{topic}{x}'"
            ),
        ),
        (
            {"into": "all", "rename": "x.{topic}"},
            ("rename: expected nothing because links.east-west.into is set; found 'x.{topic}'"),
        ),
        ({"into": "trueup.x"}, "into: expected a name that Kafka allows, not an internal one; found 'trueup.x'"),
        (
            {"dead_letter_topic": "{topic}"},
            ("dead_letter_topic: expected another topic than what is copied; found '{topic}'"),
        ),
        (
            {"start": "time:2026-02-30T00:00:00Z"},
            (
                "start: expected earliest, latest, time:2026-01-31T00:00:00Z or "
                "group:NAME; found 'time:2026-02-30T00:00:00Z'"
            ),
        ),
        ({"slow_s": 5}, "slow_s: expected more than links.east-west.heartbeat_s, 10.0; found 5.0"),
        ({"stalled_s": 20}, "stalled_s: expected more than links.east-west.slow_s, 30.0; found 20.0"),
        (
            {"failures": "hook"},
            ("hook: expected module:function because links.east-west.failures is hook; found nothing"),
        ),
        ({"hook": "a.b:c"}, "failures: expected hook because links.east-west.hook is set; found 'stop'"),
        ({"transform": "a.b"}, "transform: expected module:function; found 'a.b'"),
        (
            {"transform": "a:b", "copy": "batches"},
            (
                "copy: expected records or auto because links.east-west.transform "
                "processes every record; found 'batches'"
            ),
        ),
        (
            {"failures": "dead-letter", "copy": "batches"},
            ("copy: expected records or auto because links.east-west.failures handles single records; found 'batches'"),
        ),
        ({"align": ["acl"]}, "align: expected any of partitions, configs, groups, acls; found ['acl']"),
        ({"in_flight": 6}, "in_flight: expected a whole number, at least 1, at most 5; found 6"),
    ],
)
def test_a_link_that_cannot_work_is_refused(keys: dict[str, object], problem: str):
    assert wrong(**keys) == [f"links.east-west.{problem}"]


def test_a_link_without_required_settings_is_reported_with_them():
    assert [line.partition(":")[0] for line in problems({"kafka": KAFKA, "links": {"l": None}})] == [
        "links.l.source",
        "links.l.target",
        "links.l.topics",
    ]


@pytest.mark.parametrize(
    ("cluster", "problem"),
    [
        ({"bootstrap": "x:1", "bit": 0}, "kafka.south.bit: expected another than that of kafka.east; found 0"),
        (
            {"bootstrap": "w2:9092", "bit": 9},
            ("kafka.south.bootstrap: expected another cluster than kafka.west; found w2:9092"),
        ),
        ({"bootstrap": "x", "bit": 9}, "kafka.south.bootstrap: expected host:port[,host:port...]; found 'x'"),
    ],
)
def test_clusters_that_cannot_be_distinguished_are_refused(cluster: dict[str, object], problem: str):
    assert problems({"kafka": {**KAFKA, "south": cluster}, "links": {"l": EAST_WEST}}) == [problem]


@pytest.mark.parametrize("name", ["a.b", "a b", "", "-a", "a,b", "x" * 65])
def test_names_go_into_headers_topics_and_keys(name: str):
    assert problems({"kafka": KAFKA, "links": {name: EAST_WEST}}) == [
        f"links.{name}: expected a name of at most 64 letters, digits, - and _; found {name!r}"
    ]


def test_links_that_write_to_one_cluster_are_distinguished():
    links = {"a": {**EAST_WEST, "flow": 7}, "b": {**EAST_WEST, "source": "north", "flow": 7}}
    assert problems({"kafka": KAFKA, "links": links}) == [
        "links.b.flow: expected another than that of links.a to the same target; found 7"
    ]


def test_two_links_may_not_bring_the_same_records():
    links = {"a": EAST_WEST, "b": {**EAST_WEST, "topics": ["pay.in"]}}
    assert problems({"kafka": KAFKA, "links": links}) == [
        "links.b.forward: expected one route from east to pay.in at west, or records arrive twice; found a and b"
    ]


def test_a_mesh_that_forwards_is_refused_and_one_that_does_not_is_right():
    def mesh(forward: bool) -> dict[str, object]:
        ends = [(a, b) for a in KAFKA for b in KAFKA if a != b]
        return {f"{a}-{b}": {**EAST_WEST, "source": a, "target": b, "forward": forward} for a, b in ends}

    assert len(parse({"kafka": KAFKA, "links": mesh(forward=False)}).table(LinkSettings)) == 6
    assert "records arrive twice; found east-north and east-west > west-north" in "".join(
        problems({"kafka": KAFKA, "links": mesh(forward=True)})
    )


def test_renamed_copies_are_other_topics():
    links = {"a": EAST_WEST, "b": {**EAST_WEST, "rename": "{source}.{topic}"}}
    assert len(parse({"kafka": KAFKA, "links": links}).table(LinkSettings)) == 2


def test_links_over_other_topics_take_what_path_they_like():
    links = {"a": {**EAST_WEST, "copy": "records"}, "b": {**WEST_EAST, "topics": ["x"], "copy": "batches"}}
    assert len(parse({"kafka": KAFKA, "links": links}).table(LinkSettings)) == 2


@pytest.mark.parametrize(
    ("text", "start"),
    [
        ("earliest", Start("earliest")),
        ("group:billing:eu", Start("group", group="billing:eu")),
        ("time:1970-01-02T00:00:00Z", Start("time", 86_400_000)),
        ("time:1970-01-01T02:00:00.250+02:00", Start("time", 250)),
        ("time:2024-02-29T23:59-00:30", Start("time", 1_709_252_940_000)),
        ("time:2025-02-29T00:00Z", None),
        ("time:2026-01-31T00:00:00", None),
        ("time:2026-01-31", None),
        ("latest:1", None),
        ("group:", None),
        ("", None),
    ],
)
def test_where_the_copy_of_a_new_partition_begins(text: str, start: Start | None):
    assert start_of(text) == start


BOTH = declared(east_west=EAST_WEST, west_east=WEST_EAST)


def test_live_keys_are_those_of_every_link():
    paused = [name for name in live_keys(BOTH) if name.endswith(".paused")]
    assert paused == ["placement.paused", "deletion.paused", "links.east-west.paused", "links.west-east.paused"]


def test_one_link_changes_and_the_other_does_not():
    changed = change(BOTH, "links.east-west.records_per_s", "100")
    assert [value_of(changed, f"links.{name}.records_per_s") for name in changed.table(LinkSettings)] == [100.0, 0.0]


@pytest.mark.parametrize("text", ["orders, new", '["orders", "new"]'])
def test_a_list_may_be_typed(text: str):
    assert change(BOTH, "links.east-west.topics", text).table(LinkSettings)["east-west"].topics == ["orders", "new"]


def test_a_text_that_looks_like_a_number_stays_a_text():
    with pytest.raises(BadSettings, match=r"links\.east-west\.start: expected earliest.*found '12'"):
        change(BOTH, "links.east-west.start", "12")


def test_a_change_obeys_the_rules_for_links():
    with pytest.raises(BadSettings, match=r"links\.east-west\.topics: expected a regular expression"):
        change(BOTH, "links.east-west.topics", ["/(/"])


@pytest.mark.parametrize("name", ["links.east-west.copy", "links.south.paused", "links.paused", "kafka.east.bit"])
def test_what_is_not_live_does_not_change(name: str):
    with pytest.raises(BadSettings, match="expected a live key"):
        change(BOTH, name, "x")


def test_no_secret_is_shown_by_its_key():
    secret = {name for name, spec, _ in all_keys(BOTH) if spec.metadata["secret"]}
    assert {f"kafka.{name}.options" for name in KAFKA} <= secret


def test_a_bad_secret_is_not_repeated():
    raw = {
        "kafka": {**KAFKA, "east": {**KAFKA["east"], "options": {"sasl.password": 12345}}},
        "links": {"l": EAST_WEST},
    }
    assert problems(raw) == ["kafka.east.options: expected names and texts; found something else"]


def test_directories_of_a_declared_cluster_need_no_links():
    assert parse({"kafka": KAFKA, "logdirs": {"east": {}}}).table(LogDirsSettings)["east"].mode == "observe"


def test_everything_wrong_with_log_directories_is_reported_at_once():
    bad = {"windows": ["22:00-22:00"], "exclude": ["/(/"], "exclude_dirs": ["data"]}
    result = problems({"kafka": KAFKA, "logdirs": {"south": bad}})
    assert [line.split(":")[0] for line in result] == [
        "logdirs.south",
        "logdirs.south.exclude",
        "logdirs.south.exclude_dirs",
        "logdirs.south.windows",
    ]


def test_a_live_window_that_is_none_is_refused():
    with pytest.raises(BadSettings, match=r"logdirs\.east\.windows: expected two different times"):
        change(parse({"kafka": KAFKA, "logdirs": {"east": {}}}), "logdirs.east.windows", "night")
