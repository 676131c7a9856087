"""Tails of partitions of a Kafka cluster, for the searches of `connectors.replication.tail`.

Marks of records (`connectors.replication.headers.MARK`) count only in batches of this link, as their producer ids say:
applications copy headers.
"""

import time
from collections.abc import Mapping

from trueup.connectors.contract import LogId
from trueup.connectors.kafka.client.cluster import KafkaClient
from trueup.connectors.kafka.client.fetch_produce import Fetched, problem
from trueup.connectors.kafka.protocol.compression import opened
from trueup.connectors.kafka.protocol.record_batch import CODEC, HEADER_BYTES, BatchHeader, walk
from trueup.connectors.kafka.replication.records.decode import marks_in
from trueup.connectors.replication.tail import CopiedRecord, TailSearch
from trueup.state.common.errors import Retry, TrueupError
from trueup.state.replication.provenance import tag_of

TIMEOUT_S = 30.0
_WAIT_MS, _BYTES, _MOST_BYTES = 100, 1 << 18, 16 << 20
_Marks = list[tuple[bytes, CopiedRecord]]


class KafkaTails:
    """Implements `connectors.replication.tail.Tails`, for the records of one writer."""

    def __init__(self, client: KafkaClient, writer_id: int) -> None:
        self._client, self._writer_id = client, writer_id

    def run(self, searches: Mapping[LogId, TailSearch]) -> dict[LogId, TrueupError]:
        """Run all searches to their ends. Returns the errors of partitions that the cluster refuses. Raises `Retry` if
        it does not deliver records."""
        refused: dict[LogId, TrueupError] = {}
        while spans := {
            log: span for log, search in searches.items() if log not in refused and (span := search.span()) is not None
        }:
            marks = self._read(spans, refused)
            for log in spans.keys() - refused.keys():
                searches[log].read(spans[log][0], marks[log])
        return refused

    def _read(self, spans: Mapping[LogId, tuple[int, int]], refused: dict[LogId, TrueupError]) -> dict[LogId, _Marks]:
        """The marks of each span."""
        marks: dict[LogId, _Marks] = {log: [] for log in spans}
        places, until_s = {log: low for log, (low, _) in spans.items()}, time.monotonic() + TIMEOUT_S
        self._client.refresh(log.topic for log in spans)
        while left := [log for log in spans if log not in refused and places[log] < spans[log][1]]:
            if time.monotonic() > until_s:
                names = ", ".join(map(str, sorted(left)))
                raise Retry(f"the tails of {names}", f"no records for {TIMEOUT_S:.0f} s", "check the target")
            for log, answer in self._fetched({log: places[log] for log in left}).items():
                if answer.error:
                    error = problem(answer.error, f"read the tail of {log} in {self._client.endpoint.name}")
                    if isinstance(error, Retry):
                        raise error
                    refused[log] = error
                elif (at := self._taken(log, answer, places[log], spans[log][1], marks[log])) > places[log]:
                    places[log], until_s = at, time.monotonic() + TIMEOUT_S
        return marks

    def _fetched(self, places: Mapping[LogId, int]) -> dict[LogId, Fetched]:
        """One response of each leader. Raises `Retry` and `Stop`."""
        answers: dict[LogId, Fetched] = {}
        for node, offsets in self._client.by_leader(places).items():
            answers |= self._client.fetch(node, offsets, _BYTES, _MOST_BYTES, _WAIT_MS)
        return answers

    def _taken(self, log: LogId, answer: Fetched, at: int, end: int, marks: _Marks) -> int:
        """Add the marks of a response before ``end``. Returns the offset behind it."""
        if answer.end < end:
            raise Retry(f"the tail of {log} up to {end}", f"that it ends at {answer.end}", "wait for its new leader")
        where, first = f"records of {log}", at
        for header, batch in walk(answer.records):
            if header.following <= at:
                continue
            at = header.following
            if self._is_ours(header):
                body = opened(header.attributes & CODEC, batch[HEADER_BYTES:], where)
                for prefix, source, offset in marks_in([(header, body)], where):
                    if first <= offset < end:
                        marks.append((prefix, CopiedRecord(source, offset)))
        return at

    def _is_ours(self, header: BatchHeader) -> bool:
        tag = tag_of(header.producer_id)
        return tag is not None and not tag.whole and tag.writer_id == self._writer_id
