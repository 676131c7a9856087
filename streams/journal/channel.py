"""Publishes records of workers to the journal."""

from dataclasses import dataclass, field

from trueup.connectors.kafka.journal.topics import Announcer


@dataclass(frozen=True, slots=True)
class Channel:
    """The topic that workers publish to, and client settings, which may hold secrets and are never printed."""

    topic: str
    client: tuple[tuple[str, str], ...] = field(repr=False)


_announcers: dict[Channel, Announcer] = {}


def publish(channel: Channel, key: bytes, body: bytes) -> None:
    """Send a record without waiting; it may be lost. The client is shared by all threads of the process. Errors of the
    journal are not raised."""
    if channel not in _announcers:
        _announcers[channel] = Announcer(dict(channel.client))
    _announcers[channel].publish(channel.topic, key, body)
