import pytest

from state.settings import parse
from streams.selftest import self_test

pytestmark = pytest.mark.servers


def test_spark_connector_avro_and_operator_work_together():
    settings = parse({"cluster": {"zookeeper": "127.0.0.1:1"}, "spark": {"memory": "1g"}})
    assert self_test(settings).startswith("Spark 4.3.0 with connector")
