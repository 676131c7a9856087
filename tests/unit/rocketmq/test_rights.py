from collections.abc import Iterator
from typing import Any

import pytest

from tests.unit.rocketmq.peers import Peer, answer
from tests.unit.rocketmq.test_cluster import table
from trueup.connectors.contract import Endpoint
from trueup.connectors.rocketmq.client import rights
from trueup.connectors.rocketmq.client.cluster import RocketMqClient
from trueup.connectors.rocketmq.client.codes import RequestCode
from trueup.state.common.errors import Stop


@pytest.fixture
def client(remark: str) -> Iterator[RocketMqClient]:
    """A client of one server, which is name server and broker and refuses requests about rights."""

    def handler(request: dict[str, Any]) -> bytes:
        if request["code"] == RequestCode.CLUSTER:
            return answer(request, body=table({"a": peer.address}))
        return answer(request, 1, remark=remark)

    with Peer(handler) as peer, RocketMqClient(Endpoint("east", peer.address, 0)) as made:
        yield made


@pytest.mark.parametrize(
    "remark",
    ["An system error occurred, please try again later.", "The authorizationMetadataProvider is not configured."],
)
def test_a_broker_without_acl_is_known_by_its_remark(client: RocketMqClient) -> None:
    with pytest.raises(rights.NoRights):
        rights.rights(client, "a")


@pytest.mark.parametrize("remark", ["java.lang.NullPointerException"])
def test_another_error_is_not_taken_for_a_missing_acl(client: RocketMqClient) -> None:
    with pytest.raises(Stop) as refusal:
        rights.rights(client, "a")
    assert not isinstance(refusal.value, rights.NoRights)
