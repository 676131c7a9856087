"""Reads topics as a stream of micro-batches.

An offset of Spark is {topic or partition: "LEDGER:ENTRY"}, the next entry to read of each. Spark stores it before the
micro-batch and plans the same ranges again after a failure: entries between two offsets do not change. Nothing else is
remembered.
"""

import logging
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack

import pyarrow as pa
from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadLimit, ReadMaxRows, SupportsTriggerAvailableNow
from tenacity import retry, retry_if_exception_type, stop_after_delay, wait_exponential

from trueup.connectors.pulsar.topics import PulsarTopic, topic_of
from trueup.state.common.errors import Refused, Retry, Stop
from trueup.state.read_priority import offsets
from trueup.state.read_priority.positions import EntryPosition, LedgerRange, position_of
from trueup.state.read_priority.tiers import LedgerInfo
from trueup.streams.topic_reader.spark import executor
from trueup.streams.topic_reader.spark.options import SourceOptions
from trueup.streams.topic_reader.spark.planner import Planner
from trueup.streams.topic_reader.topics import opened

_PATIENCE_S = 60.0
_patient = retry(
    retry=retry_if_exception_type(Retry), stop=stop_after_delay(_PATIENCE_S), wait=wait_exponential(max=5), reraise=True
)
"""Plans again while ZooKeeper or bookies do not respond: an error would end the query."""
log = logging.getLogger("trueup.reads")
Offset = dict[str, str]


class StreamOffsets:
    """Offsets and ranges of a stream. ``ends``: the ends of the topics with which the last call of `next` planned, None
    before the first call. ``skip``: whether the stream continues, with a warning, where entries were trimmed or a
    topic was deleted; otherwise `Stop` is raised."""

    def __init__(self, planner: Planner, skip: bool) -> None:
        self._planner, self._skip = planner, skip
        self.ends: Offset | None = None

    def first(self, latest: bool) -> Offset:
        """The offset at which the stream begins. ``latest``: whether the stream begins with entries that become
        readable from now on."""
        positions = {}
        for topic in self._planner.topics():
            ledgers, end = self._planner.now(topic)
            positions[str(topic)] = offsets.shown(end if latest else min(end, self._planner.begin(ledgers)))
        return positions

    def newest(self) -> Offset:
        """The end of every topic that exists now."""
        ends = {}
        for topic in self._planner.topics():
            ledgers, end = self._planner.now(topic)
            ends[str(topic)] = offsets.shown(offsets.settled(ledgers, end))
        return ends

    def next(self, start: Mapping[str, str], most: int | None, until: Mapping[str, str] | None) -> Offset:
        """The offset after the next micro-batch of at most ``most`` entries, not beyond ``until``. A new topic is noted
        with its first position, and read in the micro-batch after that."""
        there = {str(topic): topic for topic in self._planner.topics()}
        for name in start.keys() - there.keys():
            self._lost(name, start[name], "the topic was deleted")
        stops, ahead = dict[str, EntryPosition](), dict[str, tuple[list[LedgerInfo], EntryPosition, EntryPosition]]()
        for name, topic in there.items():
            if name in start:
                ledgers, end = self._planner.now(topic)
                at = self._begin(name, position_of(start[name]), ledgers)
                if until is not None:
                    end = min(end, position_of(until[name])) if name in until else at
                ahead[name] = ledgers, at, max(at, end)
            elif until is None or name in until:
                stops[name] = offsets.begin_of(self._planner.ledgers(topic))
        self.ends = {name: offsets.shown(end) for name, (_, _, end) in ahead.items()}
        stops |= _ends(ahead, most)
        return {name: offsets.shown(at) for name, at in sorted(stops.items())}

    def partitions(self, start: Mapping[str, str], end: Mapping[str, str]) -> list[InputPartition]:
        """The ranges between two offsets."""
        ranges: list[InputPartition] = []
        for name in sorted(end):
            if name in start and start[name] != end[name]:
                topic = topic_of(name)
                ledgers = self._ledgers(topic, start[name])
                at = self._begin(name, position_of(start[name]), ledgers)
                ranges += self._planner.ranges(topic, ledgers, at, position_of(end[name]))
        return ranges

    def _ledgers(self, topic: PulsarTopic, start: str) -> list[LedgerInfo]:
        try:
            return self._planner.ledgers(topic)
        except Refused:
            self._lost(str(topic), start, "the topic was deleted")
            return []

    def _begin(self, name: str, at: EntryPosition, ledgers: list[LedgerInfo]) -> EntryPosition:
        """The position, or the first later one if its ledger was trimmed."""
        if not offsets.trimmed(ledgers, at):
            return at
        self._lost(name, offsets.shown(at), f"ledger {at.ledger} was trimmed, or the topic was created again")
        return max(at, offsets.begin_of([info for info in ledgers if info.ledger > at.ledger]))

    def _lost(self, name: str, start: str, found: str) -> None:
        expected = f"the entries of {name} from {start} on"
        if not self._skip:
            raise Stop(expected, found, "start with a new checkpoint, or skip what is gone (missing: skip)")
        log.warning("expected %s; found that %s; skipped", expected, found)


def _ends(
    ahead: Mapping[str, tuple[list[LedgerInfo], EntryPosition, EntryPosition]], most: int | None
) -> dict[str, EntryPosition]:
    """Where to stop in each topic."""
    parts: dict[str, list[LedgerRange]] = {name: offsets.between(*topic) for name, topic in ahead.items()}
    backlogs = {name: offsets.count(ranges) for name, ranges in parts.items()}
    shares = backlogs if most is None else offsets.shares(backlogs, most)
    stops = {}
    for name, (ledgers, at, end) in ahead.items():
        stop = offsets.limited(ledgers, at, end, shares[name]) if shares[name] < backlogs[name] else end
        stops[name] = offsets.settled(ledgers, stop)
    return stops


class MicroBatchReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """See `DataSourceStreamReader`. On executors only `read` is called."""

    def __init__(self, options: SourceOptions, columns: executor.RequestedColumns) -> None:
        self._options, self._columns = options, columns
        self._stack: ExitStack | None = None
        self._made: StreamOffsets | None = None
        self._until: Offset | None = None

    def _progress(self) -> StreamOffsets:
        """Opened once on the driver, and used until `stop`."""
        if self._made is None:
            self._stack = ExitStack()
            topics = self._stack.enter_context(opened(self._options.settings(), self._options.read))
            self._made = StreamOffsets(Planner(topics, self._options), self._options.read.skip_missing)
        return self._made

    @_patient
    def initialOffset(self) -> Offset:  # noqa: N802
        """See `StreamOffsets.first`."""
        return self._progress().first(self._options.from_latest)

    @_patient
    def latestOffset(self, start: Offset, limit: ReadLimit) -> Offset:  # noqa: N802
        """See `StreamOffsets.next`. The limit of rows limits entries, which are batches of messages."""
        most = limit.max_rows if isinstance(limit, ReadMaxRows) else None
        return self._progress().next(start, most, self._until)

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802
        """The option ``max_entries_per_batch``."""
        most = self._options.batch_entries
        return ReadMaxRows(most) if most else ReadAllAvailable()

    @_patient
    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802
        """Note the present ends, where the stream ends."""
        self._until = self._progress().newest()

    def reportLatestOffset(self) -> Offset | None:  # noqa: N802
        """The ends that the last micro-batch was planned with, for Spark's progress reports."""
        return self._progress().ends

    @_patient
    def partitions(self, start: Offset, end: Offset) -> Sequence[InputPartition]:
        """See `StreamOffsets.partitions`."""
        return self._progress().partitions(start, end)

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """The messages of one range."""
        return executor.read(self._options, self._columns, partition.value)

    def stop(self) -> None:
        """Close the connections."""
        if self._stack is not None:
            self._stack.close()
        self._stack = self._made = None
