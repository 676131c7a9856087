"""The journal's topic of the read priority stream, and its records."""

from trueup.state.read_priority.lifecycle import Change, ChangeStage, PriorityState, Purpose, Switch
from trueup.state.read_priority.tiers import ReadPriority
from trueup.streams.journal.topic import JournalTopic, Record, declare

TOPICS = declare(
    JournalTopic(
        "read_priorities",
        "read_priority/schemas/priority.avsc",
        key=lambda record: record["target"].encode(),
        form="read_priority.topics:kept_of",
    )
)
(PRIORITIES,) = (topic.name for topic in TOPICS)


def record_of(target: str, kept: PriorityState) -> dict[str, object] | None:
    """What is remembered of a target as a record; None without anything. Looks are counted anew after a start: the
    last one may have been lost."""
    if kept.empty:
        return None
    change, switch = kept.change, kept.switch
    return {
        "target": target,
        "change": change
        and {
            "purpose": change.purpose,
            "want": change.want or "",
            "before": change.before or "",
            "stage": change.stage,
            "at_ms": change.at_ms,
            "rule": change.rule,
            "detail": change.detail,
            "plain": change.plain,
        },
        "switch": switch
        and {
            "before": switch.before or "",
            "priority": switch.priority,
            "at_ms": switch.at_ms,
            "made": switch.made,
            "unloaded": switch.unloaded,
        },
    }


def kept_of(record: Record) -> tuple[str, PriorityState]:
    """The inverse of `record_of`: the target and what is remembered of it."""
    change, switch = record["change"], record["switch"]
    return record["target"], PriorityState(
        change
        and Change(
            record["target"],
            Purpose(change["purpose"]),
            _priority(change["want"]),
            _priority(change["before"]),
            ChangeStage(change["stage"]),
            change["at_ms"],
            change["rule"],
            change["detail"],
            plain=change["plain"],
        ),
        switch
        and Switch(
            _priority(switch["before"]),
            ReadPriority(switch["priority"]),
            switch["at_ms"],
            switch["made"],
            unloaded=switch["unloaded"],
        ),
    )


def _priority(text: str) -> ReadPriority | None:
    return ReadPriority(text) if text else None
