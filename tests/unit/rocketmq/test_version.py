"""What the version of a broker means for links and for the doctor."""

import json
from contextlib import ExitStack
from typing import Any

import pytest

from tests.unit.rocketmq.fake_cluster import FakeCluster
from tests.unit.rocketmq.peers import Handler, answer
from trueup.connectors.rocketmq.client.codes import RequestCode, ResponseCode
from trueup.connectors.rocketmq.client.version import shown
from trueup.connectors.rocketmq.replication.admin import RocketMqAdmin

WITHOUT_RIGHTS = "no ACL 2.0 before 5.3: rights are not copied"
WITHOUT_ATTRIBUTES = "no attributes of topics and groups, no order, time-out or retry policy of groups before 5.0"


def broker(version: str, settings: bytes | None = b"aclEnable=false\n") -> Handler:
    """A broker of a version before 5.3. One without settings refuses to show them."""
    figures = {"table": {"brokerVersionDesc": version}}

    def handler(request: dict[str, Any]) -> bytes:
        if request["code"] == RequestCode.BROKER_RUNTIME:
            return answer(request, body=json.dumps(figures).encode())
        if request["code"] == RequestCode.BROKER_CONFIG and settings is not None:
            return answer(request, body=settings)
        if request["code"] == RequestCode.ALL_TOPIC_CONFIGS:
            return answer(request, body=b'{"topicConfigTable":{}}')
        return answer(request, ResponseCode.UNSUPPORTED, remark="request type not supported")

    return handler


@pytest.mark.parametrize(
    ("versions", "found"),
    [
        (["V4_9_7"], f"RocketMQ 4.9.7 has {WITHOUT_RIGHTS}, {WITHOUT_ATTRIBUTES}"),
        (["V5_1_4"], f"RocketMQ 5.1.4 has {WITHOUT_RIGHTS}"),
        (["V5_2_0", "V4_9_7"], f"RocketMQ 4.9.7 has {WITHOUT_RIGHTS}, {WITHOUT_ATTRIBUTES}"),
        ([""], f"RocketMQ has {WITHOUT_RIGHTS}"),
    ],
)
def test_the_doctor_says_once_what_the_oldest_broker_does_not_have(versions: list[str], found: str) -> None:
    with ExitStack() as stack:
        brokers = {f"broker-{number}": broker(version) for number, version in enumerate(versions)}
        cluster = FakeCluster(stack, **brokers)
        admin = stack.enter_context(RocketMqAdmin(cluster.endpoint))
        assert admin.notes("beats")[0] == found


def test_the_doctor_names_the_brokers_with_acl_1() -> None:
    with ExitStack() as stack:
        signed = b"brokerName=signed\naclEnable=true\n"
        cluster = FakeCluster(stack, open=broker("V4_9_7"), signed=broker("V4_9_7", signed))
        admin = stack.enter_context(RocketMqAdmin(cluster.endpoint))
        assert admin.notes("beats")[0].startswith("ACL 1.0 (plain_acl.yml) on signed; RocketMQ 4.9.7 has ")


def test_the_doctor_does_not_deny_acl_1_on_a_broker_that_hides_its_settings() -> None:
    with ExitStack() as stack:
        cluster = FakeCluster(stack, shut=broker("V4_9_7", settings=None))
        admin = stack.enter_context(RocketMqAdmin(cluster.endpoint))
        assert admin.notes("beats")[0].startswith("ACL 1.0 is unknown on shut; RocketMQ 4.9.7 has ")


@pytest.mark.parametrize(("version", "compared"), [("V4_9_7", False), ("V5_1_4", True), ("", True)])
def test_attributes_of_topics_are_compared_where_brokers_have_them(version: str, compared: bool) -> None:
    with ExitStack() as stack:
        admin = stack.enter_context(RocketMqAdmin(FakeCluster(stack, a=broker(version)).endpoint))
        assert ("attributes.message.type" in admin.known_settings()) == compared


def test_an_unknown_version_is_shown_without_a_number() -> None:
    assert shown(()) == "RocketMQ"
