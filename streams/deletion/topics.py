"""The journal's topics of the deletion stream."""

from trueup.streams.journal.topic import JournalTopic, declare

TOPICS = declare(
    JournalTopic("owners", "deletion/schemas/owner.avsc", observed=True),
    JournalTopic("markers", "deletion/schemas/marker.avsc", observed=True, signed=True),
    JournalTopic("strays", "deletion/schemas/marker.avsc", observed=True, signed=True),
)
OWNERS, MARKERS, STRAYS = (topic.name for topic in TOPICS)
