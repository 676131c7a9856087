"""The registration of the data source, and its columns."""

import subprocess
import sys

import pytest
from pyspark.sql.types import IntegerType, LongType, StructField, StructType

from trueup.state.common.errors import BadSettings
from trueup.streams.topic_reader.spark.source import PulsarLedgers

GIVEN = {"topics": "a", "zookeeper": "h:1"}


def test_importing_the_package_imports_neither_spark_nor_clients() -> None:
    heavy = "('pyspark', 'pyarrow', 'numpy', 'kazoo', 'boto3')"
    code = f"import sys, trueup; trueup.register; sys.exit(any(name in sys.modules for name in {heavy}))"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_a_column_of_another_type_is_refused() -> None:
    wanted = StructType([StructField("entry", IntegerType()), StructField("ledger", LongType())])
    with pytest.raises(BadSettings, match="found entry int"):
        PulsarLedgers(GIVEN).reader(wanted)


@pytest.mark.parametrize("wanted", [{"to": "7:1"}, {"to": "2026-01-01T00:00:00Z"}])
def test_a_stream_has_no_end(wanted: dict[str, str]) -> None:
    source = PulsarLedgers({**GIVEN, **wanted})
    with pytest.raises(BadSettings, match="a stream does not end"):
        source.streamReader(source.schema())


def test_a_batch_does_not_begin_with_what_is_new() -> None:
    source = PulsarLedgers({**GIVEN, "from": "latest"})
    with pytest.raises(BadSettings, match="latest, which is for streams"):
        source.reader(source.schema())
