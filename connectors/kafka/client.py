"""kafka-python's administrative client, mended."""

from typing import Any

from kafka import errors as kafka_errors
from kafka.admin import KafkaAdminClient


class CleanClient(KafkaAdminClient):  # type: ignore[misc]
    """One that leaves no thread behind when it cannot connect, and that knows every broker that it is sent to.

    Its metadata are five minutes old at most. A broker that was away when they were read is not in them, and every
    request to it would fail until they are read again.
    """

    def __init__(self, **configs: object) -> None:
        try:
            super().__init__(**configs)
        except kafka_errors.KafkaError:
            if hasattr(self, "_net"):
                self._client.close()
                self._net.stop()
            raise
        self._send = self._manager.send
        self._manager.send = self._send_known

    async def _send_known(self, request: Any, node_id: Any = None, request_timeout_ms: int | None = None) -> Any:
        cluster = self._manager.cluster
        if node_id is not None and cluster.broker_metadata(node_id) is None:
            await cluster.refresh_metadata()
        return await self._send(request, node_id, request_timeout_ms)
