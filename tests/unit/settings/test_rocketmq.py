"""The section of RocketMQ clusters, and links to and from them."""

from typing import Any

import pytest

from trueup.state.common.errors import BadSettings
from trueup.state.common.systems import SYSTEMS, internal
from trueup.state.settings.rocketmq import check_env
from trueup.state.settings.section import Draft
from trueup.state.settings.settings import Settings, parse
from trueup.streams import catalog
from trueup.streams.replication.clusters import endpoint_of

USER = {"access_key_env": "RMQ_AK", "secret_key_env": "RMQ_SK"}


def settings(cluster: dict[str, Any], **link: Any) -> Settings:
    declared = {
        "kafka": {"events": {"bootstrap": "k:9092", "bit": 0}},
        "rocketmq": {"hangzhou": {"namesrv": "n1:9876;n2:9876", "bit": 1, **cluster}},
        "links": {"in": {"source": "events", "target": "hangzhou", "topics": ["orders"], **link}},
    }
    return parse(declared, catalog.sections())


def problem(cluster: dict[str, Any], **link: Any) -> str:
    with pytest.raises(BadSettings) as refused:
        settings(cluster, **link)
    return "\n".join(refused.value.problems)


def test_the_secrets_of_a_cluster_are_read_from_the_environment() -> None:
    made = settings({**USER, "options": {"tls.ca": "system"}})
    endpoint = endpoint_of(made.sections, "hangzhou", {"RMQ_AK": "link", "RMQ_SK": "hidden"})
    assert endpoint.options == {"tls.ca": "system", "access.key": "link", "secret.key": "hidden"}
    assert (endpoint.system, endpoint.address, "hidden" in repr(endpoint)) == ("rocketmq", "n1:9876,n2:9876", False)


def test_a_variable_that_is_not_set_is_named_and_nothing_is_connected() -> None:
    with pytest.raises(BadSettings, match=r"rocketmq\.hangzhou: expected the environment variables RMQ_SK; found none"):
        endpoint_of(settings(USER).sections, "hangzhou", {"RMQ_AK": "link"})


def test_variables_are_checked_by_name() -> None:
    found = list(check_env(Draft(settings(USER).sections), {"RMQ_AK": "link"}))
    assert found == ["rocketmq.hangzhou.secret_key_env: expected a variable that is set; found 'RMQ_SK' unset"]


@pytest.mark.parametrize(
    ("cluster", "text"),
    [
        (
            {"access_key_env": "A"},
            "hangzhou.secret_key_env: expected the name of a variable because access_key_env is set",
        ),
        (
            {"secret_key_env": "A"},
            "hangzhou.access_key_env: expected the name of a variable because secret_key_env is set",
        ),
        (
            {"options": {"secret.key": "hidden"}},
            ("hangzhou.options: expected keys tls.*, timeout.ms, replicator.source; found 'secret.key'"),
        ),
        ({"namesrv": "n1"}, "hangzhou.namesrv: expected host:port[,host:port...]; found 'n1'"),
        ({"namesrv": "n1:9876,k:9092"}, "hangzhou.namesrv: expected another cluster than kafka.events; found k:9092"),
        ({"bit": 0}, "hangzhou.bit: expected another than that of kafka.events; found 0"),
    ],
)
def test_a_cluster_that_cannot_be_used_is_refused(cluster: dict[str, Any], text: str) -> None:
    found = problem(cluster)
    assert text in found
    assert "hidden" not in found


@pytest.mark.parametrize(
    ("link", "text"),
    [
        ({"rename": "from.{topic}"}, "links.in.rename: expected a name that RocketMQ allows with {topic} in it"),
        ({"into": "all.orders"}, "links.in.into: expected a name that RocketMQ allows"),
        ({"heartbeat_topic": "my.beats"}, "links.in.heartbeat_topic: expected a name that RocketMQ allows"),
        ({"failures": "dead-letter"}, "links.in.dead_letter_topic: expected a name that RocketMQ allows"),
        ({"into": "rmq_sys_all"}, "links.in.into: expected a name that RocketMQ allows, not an internal one"),
    ],
)
def test_names_that_rocketmq_does_not_allow_are_refused_with_what_made_them(link: dict[str, Any], text: str) -> None:
    assert text in problem({}, **link)


def test_a_link_without_dead_letters_needs_no_name_for_them() -> None:
    assert settings({}).sections


@pytest.mark.parametrize("name", ["orders", "inst%orders", "a|b", "x" * 127, "RMQ_SYS_orders"])
def test_names_that_rocketmq_allows(name: str) -> None:
    assert SYSTEMS["rocketmq"].allows(name)
    assert not internal(name)


@pytest.mark.parametrize(
    "name",
    [
        "%RETRY%billing",
        "%DLQ%billing",
        "rmq_sys_wheel_timer",
        "RMQ_SYS_TRANS_HALF_TOPIC",
        "TBW102",
        "SELF_TEST_TOPIC",
        "SCHEDULE_TOPIC_XXXX",
        "OFFSET_MOVED_EVENT",
        "TRANS_CHECK_MAX_TIME_TOPIC",
        "trueup-heartbeats",
    ],
)
def test_topics_of_rocketmq_itself_are_not_copied(name: str) -> None:
    assert internal(name)
