"""The configuration from file, environment and flags; all its errors are reported together."""

import re
from pathlib import Path

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from tests.configuration import load, parse
from trueup.state.common.errors import BadSettings
from trueup.state.placement.settings import PlacementSettings
from trueup.state.replication.settings import LinkSettings
from trueup.state.settings.kafka import KafkaCluster
from trueup.state.settings.settings import Settings, possible_keys
from trueup.streams.catalog import sections
from trueup.streams.config.file import reference

ROOT = Path(__file__).parents[3]
ZOOKEEPER = {"TRUEUP__CLUSTER__ZOOKEEPER": "zk:2181"}


def write(directory: Path, text: str) -> Path:
    path = directory / "trueup.yaml"
    path.write_text(text)
    return path


def problems(path: Path | None, env: dict[str, str] | None = None, flags: dict[str, object] | None = None) -> list[str]:
    with pytest.raises(BadSettings) as caught:
        load(path, env or {}, flags or {})
    return list(caught.value.problems)


def test_flags_beat_the_environment_beats_the_file(tmp_path: Path) -> None:
    path = write(tmp_path, "cluster: {zookeeper: file, name: file}\nplacement: {mode: approve, grace_s: 1}\n")
    env = {"TRUEUP__CLUSTER__NAME": "env", "TRUEUP__PLACEMENT__GRACE_S": "2"}
    made = load(path, env, {"placement.grace_s": "3"})
    placement = made.section(PlacementSettings)
    assert (made.cluster.zookeeper, made.cluster.name, placement.mode, placement.grace_s) == (
        "file",
        "env",
        "approve",
        3.0,
    )


def test_works_without_a_file() -> None:
    assert load(None, ZOOKEEPER, {}).cluster.zookeeper == "zk:2181"


def test_other_variables_are_left_alone() -> None:
    load(None, {**ZOOKEEPER, "TRUEUP_API": "x", "PATH": "y"}, {})


def test_text_from_the_environment_becomes_what_the_key_is() -> None:
    env = {
        **ZOOKEEPER,
        "TRUEUP__PLACEMENT__PAUSED": "true",
        "TRUEUP__RACKS__TABLE": "{b1: /r1}",
        "TRUEUP__CLUSTER__AUTORECOVERY": "[ar1:8080, ar2:8080]",
    }
    made = load(None, env, {})
    assert (made.section(PlacementSettings).paused, made.racks.table, made.cluster.autorecovery) == (
        True,
        {"b1": "/r1"},
        ["ar1:8080", "ar2:8080"],
    )


def test_a_text_key_stays_text() -> None:
    assert load(None, {**ZOOKEEPER, "TRUEUP__CLUSTER__NAME": "12"}, {}).cluster.name == "12"


def test_a_top_level_key_comes_from_the_environment() -> None:
    assert load(None, {**ZOOKEEPER, "TRUEUP__DATA_DIR": "/var/lib/trueup"}, {}).data_dir == "/var/lib/trueup"


def test_every_problem_is_reported_with_its_place(tmp_path: Path) -> None:
    path = write(tmp_path, "cluster:\n  zookeeper: zk\nplacement:\n  mode: loud\n  grase_s: 5\n")
    found = problems(path, {"TRUEUP__HTTP__PORT": "99999"}, {"spark.buckets": "many"})
    assert [line.partition(":")[0] for line in found] == [
        "placement.grase_s",
        "placement.mode",
        "spark.buckets",
        "http.port",
    ]
    assert [line.rpartition(" (from ")[2] for line in found] == [
        f"line 5 of {path})",
        f"line 4 of {path})",
        "--set spark.buckets)",
        "TRUEUP__HTTP__PORT)",
    ]


def test_what_is_required_is_asked_for() -> None:
    wanted = (
        "ZooKeeper servers of the cluster, host:port[,host:port...], or links or logdirs of Kafka or RocketMQ clusters"
    )
    assert problems(None) == [f"cluster.zookeeper: expected {wanted}; found nothing"]


def test_broken_yaml_is_named_with_line_and_column(tmp_path: Path) -> None:
    path = write(tmp_path, "cluster:\n  zookeeper: [zk\n")
    assert f"{path}, line 3, column 1: expected YAML" in problems(path)[0]


LINKED = """kafka:
  east: {bootstrap: "e:1", bit: 0}
  west:
    bootstrap: "w:1"
    bit: 1
links:
  East-west:
    source: east
    target: west
    topics: [orders]
"""


def test_a_link_in_the_file_is_changed_by_the_environment_and_by_flags(tmp_path: Path) -> None:
    path = write(tmp_path, LINKED)
    env = {"TRUEUP__LINKS__EAST_WEST__PAUSED": "true", "TRUEUP__KAFKA__WEST__OPTIONS": "{client.id: us}"}
    made = load(path, env, {"links.East-west.topics": "[a, b]"})
    (link,), west = made.table(LinkSettings).values(), made.table(KafkaCluster)["west"]
    assert (link.paused, link.topics, west.options) == (True, ["a", "b"], {"client.id": "us"})


def test_a_link_may_be_declared_by_flags_alone() -> None:
    flags = {
        "kafka.a.bootstrap": "a:1",
        "kafka.a.bit": "0",
        "kafka.b.bootstrap": "b:1",
        "kafka.b.bit": "1",
        "links.l.source": "a",
        "links.l.target": "b",
        "links.l.topics": "[t]",
    }
    assert load(None, {}, flags).table(LinkSettings)["l"].topics == ["t"]


def test_a_problem_of_a_link_is_reported_with_its_place(tmp_path: Path) -> None:
    path = write(tmp_path, LINKED + "    copy: loud\n    copy: louder\n")
    found = problems(path, {"TRUEUP__LINKS__EAST_WEST__LEASE_S": "0"}, {"kafka.west.bit": "0"})
    assert [line.rpartition("; found")[2] for line in found] == [
        f" 2 times, in lines 11, 12 of {path}",
        f" 'louder' (from line 12 of {path})",
        " 0 (from TRUEUP__LINKS__EAST_WEST__LEASE_S)",
        " 0 (from --set kafka.west.bit)",
    ]


def test_a_link_that_is_no_table_is_reported(tmp_path: Path) -> None:
    path = write(tmp_path, LINKED.partition("  East")[0] + "  l: 3\n")
    assert problems(path)[0] == f"links.l.: expected keys and values, found a number (from line 7 of {path})"


@pytest.mark.parametrize(
    "text",
    [
        "kafka: {east: {options: {sasl.password: hunter2}}",
        "kafka: {east: {options: {sasl.password: *hunter2}}}",
        "kafka: {east: {options: {sasl.password: !hunter2 x}}}",
        "kafka: {east: {options: {sasl.password: '\\x'hunter2'}}}",
        "kafka: {east: {options: [sasl.password, hunter2]}}",
        "kafka: {east: {options: hunter2}}",
        "kafka: {east: hunter2}",
        "kafka: hunter2",
        "kafka: [hunter2]",
        "cluster: 'auth: hunter2'",
        "cluster: {auth: {digest: [hunter2]}}",
        "spark: {conf: {1: hunter2}}",
        "hunter2",
        "[hunter2]",
    ],
)
def test_what_may_be_a_secret_is_not_printed(tmp_path: Path, text: str) -> None:
    assert "hunter2" not in str(problems(write(tmp_path, text)))


@pytest.mark.parametrize("name", ["kafka.east.options", "cluster.auth", "cluster.bookies", "spark.conf"])
@pytest.mark.parametrize("value", ["{a: hunter2", "*hunter2", "hunter2", "[hunter2]", "{1: hunter2}", "!hunter2 x"])
def test_what_may_be_a_secret_of_a_flag_is_not_printed(name: str, value: str) -> None:
    assert "hunter2" not in str(problems(None, ZOOKEEPER, {name: value}))


@pytest.mark.parametrize(
    ("value", "found"),
    [
        ("9" * 400, "a number of 1329 bits"),
        ("0x" + "f" * 5_000, "a number of 20000 bits"),
        ("9" * 5_000, "a date or number out of range"),
        ("2026-99-99", "a date or number out of range"),
        ("[" * 900, "values nested too deep"),
        (".inf", "inf"),
    ],
)
def test_a_value_that_python_chokes_on_is_a_problem_of_its_key(value: str, found: str) -> None:
    (problem,) = problems(None, ZOOKEEPER, {"placement.grace_s": value})
    assert problem.startswith("placement.grace_s: expected ")
    assert problem.endswith(f"{found} (from --set placement.grace_s)")


def test_a_name_that_is_no_text_is_reported(tmp_path: Path) -> None:
    found = problems(write(tmp_path, f"cluster: {{zookeeper: 'zk:1', 0x{'f' * 500}: 1}}\n7: 3\n"))
    assert [line.partition(":")[0] for line in found] == ["7", "cluster.a number of 2000 bits"]


def test_settings_show_no_secret() -> None:
    keys = possible_keys(sections())
    secret = [name for name, spec, _ in keys if spec.metadata.get("secret")]
    names = [name.replace("kafka.NAME", "kafka.east").replace("rocketmq.NAME", "rocketmq.west") for name in secret]
    needed = {
        "kafka.east.bootstrap": "e:1",
        "kafka.east.bit": "0",
        "journal.bootstrap": "j:1",
        "rocketmq.west.namesrv": "w:1",
        "rocketmq.west.bit": "1",
    }
    flags = {**needed, **dict.fromkeys(names, "{tls.ca: hunter2}")}
    assert "hunter2" not in repr(load(None, ZOOKEEPER, flags))


def test_a_tab_is_named(tmp_path: Path) -> None:
    path = write(tmp_path, "cluster:\n\tzookeeper: zk\n")
    assert problems(path) == [f"{path}, line 2, column 1: expected YAML; found: a tab; indent with spaces"]


def test_two_documents_are_refused(tmp_path: Path) -> None:
    path = write(tmp_path, "cluster: {zookeeper: zk}\n---\n{}\n")
    assert "expected YAML" in problems(path)[0]


def test_a_key_given_twice_is_reported(tmp_path: Path) -> None:
    path = write(tmp_path, "cluster:\n  zookeeper: a\n  zookeeper: b\n")
    assert problems(path) == [f"cluster.zookeeper: expected once; found 2 times, in lines 2, 3 of {path}"]


def test_a_missing_file_is_reported(tmp_path: Path) -> None:
    path = tmp_path / "none.yaml"
    assert problems(path) == [f"{path}: expected a readable YAML file; found: No such file or directory"]


def test_a_file_that_is_not_text_is_reported(tmp_path: Path) -> None:
    path = tmp_path / "trueup.yaml"
    path.write_bytes(b"\xff\xfe\x00")
    assert "expected a readable YAML file" in problems(path)[0]


def test_a_list_is_no_configuration(tmp_path: Path) -> None:
    path = write(tmp_path, "- a\n")
    assert problems(path) == [f"{path}: expected sections with keys; found list"]


def test_a_section_that_is_a_value_is_reported(tmp_path: Path) -> None:
    path = write(tmp_path, "cluster: {zookeeper: zk}\nplacement: 7\n")
    assert problems(path) == [f"placement.: expected keys and values, found a number (from line 2 of {path})"]


def test_a_broken_flag_is_reported() -> None:
    assert problems(None, ZOOKEEPER, {"racks.table": "{a"}) == [
        "racks.table: expected YAML; found: expected something (from --set racks.table)"
    ]


def test_an_empty_file_holds_nothing(tmp_path: Path) -> None:
    assert load(write(tmp_path, "# nothing\n"), ZOOKEEPER, {}) == load(None, ZOOKEEPER, {})


@given(st.text(max_size=60))
def test_any_text_is_settings_or_a_list_of_problems(text: str) -> None:
    try:
        load(None, {"TRUEUP__RACKS__TABLE": text, "TRUEUP__SPARK__BUCKETS": text, **ZOOKEEPER}, {})
    except BadSettings as error:
        assert error.problems  # noqa: PT017 - both outcomes are valid


def test_the_shipped_file_is_the_reference() -> None:
    assert (ROOT / "conf" / "trueup.yaml").read_text() == reference(sections())


def test_the_shipped_file_holds_the_defaults() -> None:
    assert load(ROOT / "conf" / "trueup.yaml", {}, {}) == load(
        None, {"TRUEUP__CLUSTER__ZOOKEEPER": "127.0.0.1:2181"}, {}
    )


def test_every_key_of_the_reference_is_its_default() -> None:
    uncommented = re.sub(r"(?m)^( *)#(?! )", r"\1", reference(sections()))
    raw = yaml.safe_load(uncommented)
    tables = {section.name: section.entries for section in sections() if section.entries}
    examples = {table: raw.pop(table)[name] for table, (name, *_) in tables.items()}
    given = {**raw, **{f"{table}.NAME": entry for table, entry in examples.items()}}
    named = {f"{section}.{key}" for section, inner in given.items() if isinstance(inner, dict) for key in inner}
    assert named | {"data_dir"} == {name for name, _, _ in possible_keys(sections())}
    assert parse(raw) == load(ROOT / "conf" / "trueup.yaml", {}, {})


def test_settings_have_no_key_without_a_meaning() -> None:
    assert [name for name, spec, _ in possible_keys(sections()) if not spec.metadata.get("doc")] == []
    assert Settings.__doc__
