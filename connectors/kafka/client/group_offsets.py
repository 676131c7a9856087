"""Committed offsets of consumer groups, read from their coordinators, and commits for groups without members.

ListGroups (KIP-518 adds states), OffsetFetch (KIP-709: many groups at once), OffsetCommit as a client without a
generation, Metadata for the ids of topics, which the other requests only name. All use kafka-python: librdkafka 2.16
terminates the process (rd_kafka_handle_OffsetFetch) if a coordinator that its admin client queries has moved or
is still loading.
"""

import threading
import uuid
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from typing import Any, TypeVar

from kafka import errors as kafka_errors

from trueup.connectors.closing import Closing
from trueup.connectors.contract import Endpoint
from trueup.connectors.kafka.client.connection import UNREADABLE
from trueup.connectors.kafka.client.kafka_python import CleanClient
from trueup.connectors.kafka.client.options import kafka_python
from trueup.connectors.kafka.client.topic_ids import plain_text_of
from trueup.connectors.replication.ports import SHARE, Answer, GroupCommits, Refusals
from trueup.state.common.counts import many
from trueup.state.common.errors import BadBytes, BadSettings, Retry, Stop, Unknown

CONNECT_S = 10.0
T = TypeVar("T")


class KafkaGroups(Closing):
    """The groups of one cluster. Connects on the first call, and again after every error, because coordinators move.

    Calls block. They raise `Retry` if the cluster does not respond, `Stop` if it refuses the client, `BadSettings` for
    options that kafka-python does not know. Safe to use from several threads.
    """

    def __init__(self, endpoint: Endpoint, connect_s: float = CONNECT_S) -> None:
        self.name, self.bit = endpoint.name, endpoint.bit
        self._endpoint, self._connect_ms = endpoint, int(connect_s * 1_000)
        self._lock = threading.RLock()
        self._client: Any = None

    def close(self) -> None:
        """Close all connections; the next call opens new ones."""
        with self._lock:
            client, self._client = self._client, None
        if client is not None:
            with suppress(kafka_errors.KafkaError, OSError):
                client.close()

    def states(self) -> dict[str, str]:
        """All groups with their states in lower case (`stable`, `empty` ...; `unknown` from brokers before 2.6);
        `share` for share groups, which brokers report as their type (KIP-848)."""
        listed = self._ask("list its groups", lambda client: client.list_groups())
        return {group["group_id"]: _state(group) for group in listed}

    def offsets(self, groups: Sequence[str]) -> dict[str, Answer]:
        """The committed offsets of each group, by partition; empty for a group that does not exist. One request per
        coordinator; if one group is refused, each is requested separately."""
        if not groups:
            return {}
        try:
            answers = self._ask("list the offsets of groups", lambda client: client.list_group_offsets(list(groups)))
        except BadSettings:
            raise
        except Stop as error:
            return {groups[0]: error} if len(groups) == 1 else {g: self.offsets([g])[g] for g in groups}
        return {group: answers.get(group, GroupCommits()) for group in groups}

    def ids(self, topics: Iterable[str]) -> dict[str, str]:
        """The id of each existing topic of these; empty if its brokers do not report it (before 2.8)."""
        names = sorted(set(topics))
        rows = self._ask("describe the ids of topics", lambda client: client.describe_topics(names)) if names else []
        absent = kafka_errors.UnknownTopicOrPartitionError.errno
        return {topic["name"]: _id(topic.get("topic_id")) for topic in rows if topic["error_code"] != absent}

    def settings(self, groups: Sequence[str]) -> dict[str, Mapping[str, object]]:
        """Empty: groups have no settings that outlive their members."""
        del groups
        return {}

    def create(self, groups: Mapping[str, Mapping[str, object]]) -> None:
        """Does nothing: a commit creates a group."""

    def commit(self, offsets: Mapping[str, GroupCommits]) -> dict[str, Refusals]:
        """Set committed offsets, with one request per group. Raises `Unknown` if a response is lost; if one group is
        refused, each is set separately."""
        if not offsets:
            return {}
        what = f"group {next(iter(offsets))}" if len(offsets) == 1 else many(len(offsets), "group")
        try:
            return {**self._ask(f"set offsets of {what}", lambda client: client.alter_offsets(offsets))}
        except Retry as error:
            raise Unknown(error.expected, error.found, "check whether it happened") from error
        except BadSettings:
            raise
        except Stop as error:
            if len(offsets) == 1:
                return dict.fromkeys(offsets, error)
            return {group: self.commit({group: places})[group] for group, places in offsets.items()}

    def _ask(self, doing: str, call: Callable[[Any], T]) -> T:
        with self._lock:
            try:
                return call(self._connected())
            except kafka_errors.KafkaError as error:
                self.close()
                reason = f"{type(error).__name__}: {error}"
                if error.retriable or isinstance(error, kafka_errors.KafkaConnectionError):
                    raise Retry(f"{self.name} to {doing}", reason, "the request is retried") from error
                raise Stop(f"{self.name} to {doing}", reason, "check the error and the user's permissions") from error
            except UNREADABLE as error:
                self.close()
                where, expected = f"a response from {self.name}", f"the fields needed to {doing}"
                raise BadBytes(where, 0, expected, "other bytes", "check the address") from error

    def _connected(self) -> Any:
        if self._client is None:
            self._client = CleanClient(**kafka_python(self._endpoint), bootstrap_timeout_ms=self._connect_ms)
        return self._client


def _state(group: Mapping[str, object]) -> str:
    if str(group.get("group_type") or "").lower() == SHARE:
        return SHARE
    return str(group.get("group_state") or "unknown").lower()


def _id(text: str | None) -> str:
    return plain_text_of(uuid.UUID(text).bytes) if text else ""
