"""What a worker needs to publish on the journal by itself."""

from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class Channel:
    """Where workers publish: topic and client settings, which may hold secrets and are never shown."""

    topic: str
    client: tuple[tuple[str, str], ...] = field(repr=False)
