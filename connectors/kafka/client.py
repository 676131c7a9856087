"""kafka-python's administrative client, mended."""

from kafka import errors as kafka_errors
from kafka.admin import KafkaAdminClient


class CleanClient(KafkaAdminClient):  # type: ignore[misc]
    """One that leaves no thread behind when it cannot connect."""

    def __init__(self, **configs: object) -> None:
        try:
            super().__init__(**configs)
        except kafka_errors.KafkaError:
            if hasattr(self, "_net"):
                self._client.close()
                self._net.stop()
            raise
