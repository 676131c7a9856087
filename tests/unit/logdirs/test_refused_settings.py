"""Settings of a broker that it refuses to show or to change."""

import asyncio
from typing import Any

import pytest
from kafka.protocol.admin import (
    DescribeConfigsRequest,
    DescribeConfigsResponse,
    DescribeLogDirsResponse,
    IncrementalAlterConfigsResponse,
)

from trueup.connectors.contract import Endpoint
from trueup.connectors.kafka.client.kafka_python import CleanClient
from trueup.connectors.kafka.logdirs.client import CORDON, THROTTLE, LogDirsClient
from trueup.state.common.errors import Retry, Stop, TrueupError, Unknown

BROKER = 4
DENIED = 31


class RefusingBroker:
    """The connection of kafka-python to broker 1, which responds to requests for its settings with ``code``."""

    def __init__(self, code: int) -> None:
        self.code, self.broker_version_data, self.cordoned = code, self, "/a"

    def api_version(self, request: object) -> int:
        return 1

    def run(self, work: Any, *arguments: object) -> Any:
        return asyncio.run(work(*arguments))

    async def send(self, request: Any, node_id: int | None = None) -> Any:
        if type(request).__name__ == "DescribeLogDirsRequest":
            result = DescribeLogDirsResponse.DescribeLogDirsResult
            return DescribeLogDirsResponse(error_code=0, results=[result(error_code=0, log_dir="/a", topics=[])])
        if isinstance(request, DescribeConfigsRequest):
            return DescribeConfigsResponse(results=[self._described()])
        answer = IncrementalAlterConfigsResponse.AlterConfigsResourceResponse
        one = answer(error_code=self.code, error_message=None, resource_type=BROKER, resource_name="1")
        return IncrementalAlterConfigsResponse(responses=[one])

    def _described(self) -> Any:
        result = DescribeConfigsResponse.DescribeConfigsResult
        config = result.DescribeConfigsResourceResult
        shown = {"log.dirs": "/a", CORDON: self.cordoned, THROTTLE: "5"}
        configs = [config(name=name, value=value, read_only=False, config_source=2) for name, value in shown.items()]
        return result(
            error_code=self.code,
            error_message=None,
            resource_type=BROKER,
            resource_name="1",
            configs=[] if self.code else configs,
        )


class LogDirsOf(LogDirsClient):
    """The client of one broker, without a connection."""

    def __init__(self, code: int) -> None:
        self.broker = RefusingBroker(code)
        super().__init__(Endpoint("east", "a:1", 0))

    def _connect(self) -> CleanClient:
        admin = CleanClient.__new__(CleanClient)
        admin._manager = self.broker
        return admin


@pytest.mark.parametrize(
    ("code", "expected"), [(DENIED, Stop), (40, Stop), (42, Stop), (-1, Stop), (999, Stop), (41, Retry), (7, Unknown)]
)
@pytest.mark.parametrize("limit", [5, None])
def test_a_refused_throttle_is_an_error(code: int, expected: type[TrueupError], limit: int | None) -> None:
    with pytest.raises(expected, match=f"{THROTTLE} of broker 1 set to {limit}"):
        LogDirsOf(code).throttle(1, limit)


@pytest.mark.parametrize("limit", [5, None])
def test_a_throttle_that_the_broker_accepts_is_no_error(limit: int | None) -> None:
    LogDirsOf(0).throttle(1, limit)


def test_a_throttle_that_may_not_be_read_is_an_error() -> None:
    with pytest.raises(Stop, match="ClusterAuthorizationFailedError"):
        LogDirsOf(DENIED).throttled([1])


def test_a_throttle_that_may_be_read_is_returned() -> None:
    assert LogDirsOf(0).throttled([1]) == {1: 5}


@pytest.mark.parametrize(("setting", "paths"), [("/a,/b", {"/a", "/b"}), ("", set()), ("*", {"/a"})])
def test_the_setting_of_cordons_is_read_as_paths(setting: str, paths: set[str]) -> None:
    client = LogDirsOf(0)
    client.broker.cordoned = setting
    assert client.cordoned(1) == paths


def test_cordons_that_may_not_be_read_are_an_error() -> None:
    with pytest.raises(Stop, match="ClusterAuthorizationFailedError"):
        LogDirsOf(DENIED).cordoned(1)


def test_a_broker_whose_settings_may_not_be_read_is_not_observed() -> None:
    (seen,) = LogDirsOf(DENIED).look([1])
    assert (seen.broker, "DESCRIBE_CONFIGS on the cluster is required" in seen.error) == (None, True)


def test_the_support_of_cordons_is_read_again_after_a_refusal() -> None:
    client = LogDirsOf(DENIED)
    with pytest.raises(Stop, match="the settings of broker 1"):
        client.cordon(1, ["/a"])
    client.broker.code = 0
    (seen,) = client.look([1])
    assert seen.broker is not None
    assert seen.broker.cordons
