"""Names of Kafka topics: valid names, and names reserved by Kafka, MirrorMaker or Trueup."""

import re

INTERNAL = r"__.*|mm2-.*\.internal|.*\.checkpoints\.internal"
"""Internal topics of Kafka (``__consumer_offsets`` ...) and MirrorMaker 2."""
TOPIC = re.compile(r"(?!\.{1,2}$)[a-zA-Z0-9._-]{1,249}")
"""Valid topic names (org.apache.kafka.common.internals.Topic)."""


def internal(name: str, prefix: str = "trueup") -> bool:
    """Whether a topic is internal to Kafka, MirrorMaker or Trueup. ``prefix``: journal.prefix."""
    ours = (f"{own}{end}" for own in ("trueup", prefix) for end in ".-")
    return name.startswith(tuple(ours)) or re.fullmatch(INTERNAL, name) is not None
