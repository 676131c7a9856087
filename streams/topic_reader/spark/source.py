"""The data source pulsar-ledgers, and its registration."""

from collections.abc import Iterator, Mapping, MutableMapping, Sequence

import pyarrow as pa
from pyspark.sql import SparkSession
from pyspark.sql.datasource import DataSource, DataSourceReader, DataSourceStreamReader, InputPartition
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import (
    BinaryType,
    BooleanType,
    DataType,
    IntegerType,
    LongType,
    MapType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

from trueup.state.common.errors import BadSettings
from trueup.streams.topic_reader.spark import executor
from trueup.streams.topic_reader.spark.micro_batches import MicroBatchReader
from trueup.streams.topic_reader.spark.options import SourceOptions, options_of
from trueup.streams.topic_reader.spark.planner import Planner, RangePartition
from trueup.streams.topic_reader.spark.values import BYTES, ValueSchema, spark_type, value_schema
from trueup.streams.topic_reader.topics import opened

COLUMNS: dict[str, DataType] = {
    "topic": StringType(),
    "partition": IntegerType(),
    "ledger": LongType(),
    "entry": LongType(),
    "batch_index": IntegerType(),
    "message_id": StringType(),
    "key": BinaryType(),
    "ordering_key": BinaryType(),
    "value": BinaryType(),
    "properties": MapType(StringType(), StringType()),
    "publish_time": TimestampType(),
    "event_time": TimestampType(),
    "producer": StringType(),
    "sequence": LongType(),
    "schema_version": BinaryType(),
    "encrypted": BooleanType(),
    "tier": StringType(),
}


def register(spark: SparkSession) -> None:
    """Make ``spark.read.format("pulsar-ledgers")`` and ``spark.readStream.format("pulsar-ledgers")`` available."""
    spark.dataSource.register(PulsarLedgers)


class PulsarLedgers(DataSource):
    """Topics of Pulsar, read from bookies and tiered storage. Raises `BadSettings` for invalid options."""

    def __init__(self, options: MutableMapping[str, str]) -> None:
        super().__init__(options)
        self._chosen = options_of(dict(options))
        self._value: ValueSchema | None = None

    @classmethod
    def name(cls) -> str:
        """The name of the format."""
        return "pulsar-ledgers"

    def schema(self) -> StructType:
        """All columns; see docs/reads.md. Reads the schemas of the topics if values have a type."""
        return StructType([StructField(name, kind) for name, kind in self._columns().items()])

    def _columns(self) -> dict[str, DataType]:
        """The type of every column. Spark keeps this object and thus the type that was found first."""
        if self._value is None:
            self._value = value_schema_of(self._chosen)
        return {**COLUMNS, "value": spark_type(self._value)}

    def _wanted(self, schema: StructType) -> executor.RequestedColumns:
        arrow = arrow_schema(schema, self._columns())
        return executor.RequestedColumns(arrow, self._value or BYTES)

    def reader(self, schema: StructType) -> DataSourceReader:
        """A reader of a batch. ``schema``: the columns to read, which are all columns unless the user names some."""
        if self._chosen.from_latest:
            raise BadSettings(["from: expected earliest, a message id or a time; found latest, which is for streams"])
        return BatchReader(self._chosen, self._wanted(schema))

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: N802
        """A reader of micro-batches. Raises `BadSettings` if there is an end."""
        if (self._chosen.range.last, self._chosen.range.to_ms) != (None, None):
            raise BadSettings(["to: expected latest, because a stream does not end; found another value"])
        return MicroBatchReader(self._chosen, self._wanted(schema))


class BatchReader(DataSourceReader):
    """Reads everything between the options ``from`` and ``to``, planned once."""

    def __init__(self, options: SourceOptions, columns: executor.RequestedColumns) -> None:
        self._options, self._columns = options, columns

    def partitions(self) -> Sequence[InputPartition]:
        """Ranges of entries."""
        with opened(self._options.settings(), self._options.read, keep=True) as topics:
            return Planner(topics, self._options).batch()

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """The messages of one range. Spark passes an empty partition if there is none."""
        return executor.read(self._options, self._columns, partition.value) if _given(partition) else iter(())


def _given(partition: InputPartition) -> bool:
    return isinstance(partition, RangePartition)


def value_schema_of(options: SourceOptions) -> ValueSchema:
    """The type of the values, from the latest schemas of the topics if it depends on them."""
    if options.value_type in ("bytes", "string"):
        return value_schema(options.value_type, {})
    with opened(options.settings(), options.read, keep=True) as topics:
        one_each = {topic.schema: topic for topic in Planner(topics, options).topics()}
        return value_schema(
            options.value_type, {name: topics.schemas(topic).latest() for name, topic in one_each.items()}
        )


def arrow_schema(schema: StructType, column_types: Mapping[str, DataType]) -> pa.Schema:
    """The Arrow schema of these columns. Raises `BadSettings` if one is unknown or of another type."""
    problems = [
        f"schema: expected columns of pulsar-ledgers; found {field.name} {field.dataType.simpleString()}"
        for field in schema.fields
        if column_types.get(field.name) != field.dataType
    ]
    if problems:
        raise BadSettings(problems)
    return to_arrow_schema(schema, timezone="UTC")
