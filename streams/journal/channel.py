"""Publishes records of workers to the journal."""

from dataclasses import dataclass, field

from trueup.connectors.kafka.client.security import librdkafka_of
from trueup.connectors.kafka.journal.topics import Announcer
from trueup.state.settings.settings import JournalSettings
from trueup.streams.journal.signing import Signer, number_now


def client_of(settings: JournalSettings) -> dict[str, str]:
    """Settings of librdkafka for the journal. Raises `BadSettings`."""
    return {**settings.options, **librdkafka_of(settings.security, "journal")}


@dataclass(frozen=True, slots=True)
class Channel:
    """The topic that workers publish to, and client settings, which may hold secrets and are never printed."""

    topic: str
    client: tuple[tuple[str, str], ...] = field(repr=False)
    security: tuple[tuple[str, str], ...] = field(default=(), repr=False)
    """The settings of security. Secrets that are references are resolved by the worker."""
    signer: Signer | None = None
    """The signer of the published records; None if the records are not signed."""


_announcers: dict[Channel, Announcer] = {}


def publish(channel: Channel, key: bytes, body: bytes) -> None:
    """Send a record without waiting; it may be lost. The client is shared by all threads of the process. Errors of the
    journal are not raised."""
    if channel not in _announcers:
        _announcers[channel] = Announcer({**dict(channel.client), **librdkafka_of(dict(channel.security), "journal")})
    if channel.signer is not None:
        body += channel.signer.signature(key, number_now(), body)
    _announcers[channel].publish(channel.topic, key, body)
