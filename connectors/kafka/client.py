"""kafka-python's administrative client, mended."""

from collections import deque
from collections.abc import Mapping
from typing import Any

from kafka import errors as kafka_errors
from kafka.admin import KafkaAdminClient

AT_ONCE = 32
"""Requests on the way to a broker, of those that wait for nothing but the network."""


class CleanClient(KafkaAdminClient):  # type: ignore[misc]
    """One that leaves no thread behind when it cannot connect, that knows every broker that it is sent to and who is
    the controller, and that sets the offsets of many groups at once.

    Its metadata are five minutes old at most. A broker that was away when they were read is not in them, and every
    request to it would fail until they are read again. The controller is kept until it answers that it is not any
    more, which one that is away never does.
    """

    def __init__(self, **configs: object) -> None:
        try:
            # At its limit a connection refuses requests.
            super().__init__(**{"max_in_flight_requests_per_connection": 2 * AT_ONCE, **configs})
        except kafka_errors.KafkaError:
            if hasattr(self, "_net"):
                self._client.close()
                self._net.stop()
            raise
        self._send = self._manager.send
        self._manager.send = self._send_known

    async def _send_known(self, request: Any, node_id: Any = None, request_timeout_ms: int | None = None) -> Any:
        await self._know(node_id)
        return await self._send(request, node_id, request_timeout_ms)

    async def _know(self, node_id: Any) -> None:
        cluster = self._manager.cluster
        if node_id is not None and cluster.broker_metadata(node_id) is None:
            await cluster.refresh_metadata()

    async def _send_request_to_controller(self, *request: Any, **more: Any) -> Any:
        self._controller_id = None
        return await super()._send_request_to_controller(*request, **more)

    def alter_offsets(self, asked: Mapping[str, Mapping[Any, Any]]) -> dict[str, dict[Any, Any]]:
        """What `alter_group_offsets` does and tells, for each group. Its requests do not wait for each other: a thread
        that waits for a hundred answers in turn waits for the interpreter's lock as often."""
        answers: dict[str, dict[Any, Any]] = self._manager.run(self._alter_offsets, asked)
        return answers

    async def _alter_offsets(self, asked: Mapping[str, Mapping[Any, Any]]) -> dict[str, dict[Any, Any]]:
        coordinators = await self._find_coordinator_ids(list(asked))
        sent: deque[tuple[str, Any]] = deque()
        answers = {}

        async def take() -> None:
            group, answer = sent.popleft()
            answers[group] = self._alter_group_offsets_process_response(await answer)

        for group, offsets in asked.items():
            if len(sent) == AT_ONCE:
                await take()
            request = self._alter_group_offsets_request(group, offsets)
            await self._know(coordinators[group])
            sent.append((group, self._send(request, coordinators[group])))
        while sent:
            await take()
        return answers
