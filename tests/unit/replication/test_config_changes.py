from dataclasses import replace

from trueup.state.replication.config_sync import (
    FOREVER,
    TIMES,
    AclScope,
    AlignmentPolicy,
    ChangeKind,
    Right,
    Setting,
    TopicConfigs,
    diff,
    diff_rights,
    rights_of,
)

DEFAULTS = {
    "cleanup.policy": Setting("delete", False),
    "retention.ms": Setting("604800000", False),
    "segment.bytes": Setting("1073741824", False),
    "compression.type": Setting("producer", False),
    **{name: Setting(value, False) for name, value in TIMES.items()},
}
SAME = AlignmentPolicy({"orders": "orders"}, exclude=["compression.type", r"/message\..*/"])
ALICE = Right("topic", "literal", "orders", "User:alice", "*", "read", "allow")
ORDERS = AclScope({"orders": "orders", "pay.in": "pay.in"}, ["billing"])


def topic(partitions=3, **own):
    return TopicConfigs(partitions, {**DEFAULTS, **{k.replace("_", "."): Setting(v, True) for k, v in own.items()}})


def kinds(source, target, policy=SAME):
    return [action.kind for action in diff({"orders": source}, {"orders": target}, policy)]


def merged(*sources: TopicConfigs) -> dict[str, str | None]:
    """Configuration of the one target topic that merges these sources, without timestamps."""
    names = [f"part-{number}" for number in range(len(sources))]
    (made,) = diff(dict(zip(names, sources, strict=True)), {}, AlignmentPolicy(dict.fromkeys(names, "whole")))
    return {name: value for name, value in made.configs.items() if name not in TIMES}


def test_one_topic_for_several_keeps_what_each_of_them_keeps():
    short = topic(retention_ms="1000", retention_bytes="5", max_message_bytes="70")
    long = topic(retention_ms="9000", retention_bytes="-1", max_message_bytes="60")
    assert merged(short, long) == {
        "cleanup.policy": "delete",
        "retention.ms": "9000",
        "retention.bytes": "-1",
        "max.message.bytes": "70",
    }


def test_one_topic_for_several_is_never_compacted():
    assert merged(topic(cleanup_policy="compact"), topic()) == {"cleanup.policy": "delete", "retention.ms": "-1"}


def test_equal_topics_need_nothing():
    assert kinds(topic(retention_ms="5"), topic(retention_ms="5")) == []


def test_a_missing_topic_is_made_with_all_that_keeps_its_records():
    (made,) = diff({"orders": topic(segment_bytes="9", compression_type="lz4")}, {}, SAME)
    assert (made.kind, made.partitions, made.first) == (ChangeKind.CREATE, 3, True)
    assert made.configs == {"cleanup.policy": "delete", "retention.ms": "604800000", "segment.bytes": "9", **TIMES}


def test_a_topic_is_made_safe_even_where_settings_are_not_aligned():
    (made,) = diff({"orders": topic(segment_bytes="9")}, {}, replace(SAME, align=["partitions"]))
    assert made.configs == {"cleanup.policy": "delete", "retention.ms": "604800000", **TIMES}


def test_settings_that_the_target_does_not_know_are_not_sent_to_it():
    (made,) = diff({"orders": topic(segment_bytes="9")}, {}, replace(SAME, known={"retention.ms"}))
    assert made.configs == {"retention.ms": "604800000"}


def test_no_topic_is_made_where_partitions_are_not_aligned():
    assert diff({"orders": topic()}, {}, replace(SAME, align=["configs"])) == []


def test_partitions_grow_and_never_shrink():
    assert (kinds(topic(5), topic(3)), kinds(topic(3), topic(5))) == ([ChangeKind.GROW], [])


def test_one_partition_is_told_in_the_singular():
    (made,), (grown,) = (diff({"orders": topic(n)}, there, SAME) for n, there in ((1, {}), (5, {"orders": topic(1)})))
    assert (made.text, grown.text) == (
        "it does not exist; 1 partition, settings of its source",
        "1 partition, 5 at the source",
    )


def test_retention_is_copied_from_the_defaults_of_the_source_before_any_record():
    (action,) = diff({"orders": topic()}, {"orders": topic(retention_ms="1000")}, SAME)
    assert (action.kind, action.configs, action.first) == (ChangeKind.SECURE, {"retention.ms": "604800000"}, True)


def test_timestamps_of_old_records_are_to_be_accepted_as_they_are():
    own = {"message.timestamp.type": Setting("LogAppendTime", True)}
    there = TopicConfigs(3, {**DEFAULTS, **own, "message.timestamp.after.max.ms": Setting("3600000", False)})
    (action,) = diff({"orders": topic()}, {"orders": there}, SAME)
    assert action.configs == {"message.timestamp.type": "CreateTime", "message.timestamp.after.max.ms": FOREVER}


def test_settings_of_the_topic_are_set_and_removed_as_at_the_source():
    (action,) = diff({"orders": topic(segment_bytes="9")}, {"orders": topic()}, SAME)
    (undone,) = diff({"orders": topic()}, {"orders": topic(segment_bytes="9")}, SAME)
    assert (action.configs, undone.configs) == ({"segment.bytes": "9"}, {"segment.bytes": None})


def test_an_excluded_setting_is_the_targets_own():
    assert kinds(topic(compression_type="lz4"), topic(compression_type="zstd")) == []


def test_what_must_stand_before_the_first_record_is_done_first():
    assert kinds(topic(5, segment_bytes="9"), topic(3, retention_ms="1")) == [
        ChangeKind.SECURE,
        ChangeKind.GROW,
        ChangeKind.SET,
    ]


def test_one_topic_for_all_is_made_large_enough_and_keeps_its_settings():
    policy = AlignmentPolicy({"a": "all", "b": "all"})
    sources = {"a": topic(2, retention_ms="1"), "b": topic(7)}
    (made,) = diff(sources, {}, policy)
    assert (made.topic, made.partitions, made.configs.items() >= TIMES.items()) == ("all", 7, True)
    assert diff(sources, {"all": topic(7, retention_ms="9")}, policy) == []


def test_a_topic_that_the_source_no_longer_has_is_left_alone():
    assert diff({}, {"orders": topic()}, SAME) == []


def operations(right, scope=ORDERS):
    return sorted(found.operation for found in rights_of([right], scope))


def test_reading_is_allowed_and_writing_is_not():
    assert [operations(ALICE._replace(operation=op)) for op in ("read", "write", "alter", "delete")] == [
        ["read"],
        [],
        [],
        [],
    ]


def test_all_becomes_what_reads():
    assert operations(ALICE._replace(operation="all")) == ["describe", "describe_configs", "read"]


def test_writing_is_allowed_where_a_link_copies_back():
    assert operations(ALICE._replace(operation="all"), replace(ORDERS, back=True)) == [
        "describe",
        "describe_configs",
        "read",
        "write",
    ]


def test_what_is_denied_is_denied_in_full():
    assert operations(ALICE._replace(operation="all", permission="deny")) == ["all"]


def test_a_right_on_everything_is_one_on_each_topic_of_the_link():
    assert {right.name for right in rights_of([ALICE._replace(name="*")], ORDERS)} == {"orders", "pay.in"}


def test_a_prefix_stays_a_prefix_and_is_renamed_with_its_topics():
    scope = AclScope({"pay.in": "east.pay.in"}, rename="east.{topic}")
    (right,) = rights_of([ALICE._replace(pattern="prefixed", name="pay.")], scope)
    assert (right.pattern, right.name) == ("prefixed", "east.pay.")


def test_a_prefix_that_cannot_be_renamed_becomes_names():
    scope = AclScope({"pay.in": "pay.in.copy", "x": "x.copy"}, rename="{topic}.copy")
    (right,) = rights_of([ALICE._replace(pattern="prefixed", name="pay.")], scope)
    assert (right.pattern, right.name) == ("literal", "pay.in.copy")


def test_rights_on_other_topics_and_resources_are_not_copied():
    others = [
        ALICE._replace(name="secret"),
        ALICE._replace(resource="cluster", name="kafka-cluster"),
        ALICE._replace(pattern="prefixed", name="sec"),
        ALICE._replace(resource="group", name="others"),
    ]
    assert rights_of(others, ORDERS) == set()


def test_a_right_on_a_group_of_the_link_is_copied():
    assert operations(ALICE._replace(resource="group", name="billing", operation="all")) == ["describe", "read"]


def test_a_revoked_right_goes_at_the_target_too():
    _, carried = diff_rights([ALICE], [ALICE], ORDERS, [])
    actions, left = diff_rights([], [ALICE], ORDERS, carried)
    assert ([(a.kind, a.right) for a in actions], left) == ([(ChangeKind.REVOKE, ALICE)], {ALICE})


def test_rights_stay_when_a_topic_leaves_the_link():
    assert diff_rights([], [ALICE], AclScope({"other": "other"}), [ALICE])[0] == []


def test_a_right_that_only_the_target_has_is_its_own():
    assert diff_rights([], [ALICE], ORDERS, []) == ([], set())


def test_no_right_is_wider_meanwhile():
    deny = ALICE._replace(permission="deny")
    bob, old = ALICE._replace(principal="User:bob"), deny._replace(principal="User:carol")
    actions, _ = diff_rights([bob, deny], [ALICE, old], ORDERS, [ALICE, old])
    assert [action.kind for action in actions] == [
        ChangeKind.DENY,
        ChangeKind.REVOKE,
        ChangeKind.ALLOW,
        ChangeKind.RELENT,
    ]
