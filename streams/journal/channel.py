"""What a worker needs to publish on the journal by itself."""

from dataclasses import dataclass, field

from trueup.connectors.kafka.journal.topics import Announcer


@dataclass(frozen=True, slots=True)
class Channel:
    """Where workers publish: topic and client settings, which may hold secrets and are never shown."""

    topic: str
    client: tuple[tuple[str, str], ...] = field(repr=False)


_announcers: dict[Channel, Announcer] = {}


def publish(channel: Channel, key: bytes, body: bytes) -> None:
    """Send a record that may be lost, without waiting; its clients serve all threads of the process. Never raises for
    the journal."""
    if channel not in _announcers:
        _announcers[channel] = Announcer(dict(channel.client))
    _announcers[channel].publish(channel.topic, key, body)
