"""Names of Kafka topics: what is allowed, and what belongs to Kafka, MirrorMaker or Trueup."""

import re

INTERNAL = r"__.*|mm2-.*\.internal|.*\.checkpoints\.internal"
"""Topics that Kafka (``__consumer_offsets`` ...) and MirrorMaker 2 keep for themselves."""
TOPIC = re.compile(r"(?!\.{1,2}$)[a-zA-Z0-9._-]{1,249}")
"""What Kafka allows as the name of a topic (org.apache.kafka.common.internals.Topic)."""


def internal(name: str, prefix: str = "trueup") -> bool:
    """Whether a topic is Kafka's, MirrorMaker's or Trueup's own. ``prefix``: of Trueup's journal (journal.prefix)."""
    ours = (f"{own}{end}" for own in ("trueup", prefix) for end in ".-")
    return name.startswith(tuple(ours)) or re.fullmatch(INTERNAL, name) is not None
