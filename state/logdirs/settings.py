"""The section ``logdirs`` of the settings."""

import re
from collections.abc import Iterator
from dataclasses import dataclass

from trueup.state.common.options import BYTES, COUNT, MODES, YEAR_S, key, shown
from trueup.state.common.patterns import problems_of
from trueup.state.settings.kafka import KafkaCluster
from trueup.state.settings.section import Draft, Section

PARTITION, SIZE = "partition", "size"
"""The strategies of KIP-178."""
WINDOW = re.compile(r"([01]\d|2[0-3]):([0-5]\d)-([01]\d|2[0-3]):([0-5]\d)")


@dataclass(frozen=True, slots=True)
class LogDirsSettings:
    """Log directories of one cluster of section kafka, balanced by size."""

    mode: str = key(
        "observe",
        "observe: change nothing; approve: moves and cordons wait for `trueup approve`; enforce: execute "
        "moves and cordons",
        one_of=MODES,
        live=True,
    )
    strategy: str = key(
        SIZE,
        "log.directory.select.strategy of KIP-178 for new partitions; partition: the broker selects the "
        "directory; size: all directories except those with the most usable bytes are cordoned (Kafka 4.3 or newer)",
        one_of=(PARTITION, SIZE),
        live=True,
    )
    poll_s: float = key(10.0, "Interval in seconds at which every broker is polled", least=1, most=YEAR_S)
    paused: bool = key(False, "Start no new moves and remove cordons; moves in progress continue", live=True)
    target_skew: float = key(
        0.1,
        "Maximum difference between the fullest and the emptiest directory of a broker, as a share of their size",
        least=0.01,
        most=1,
        live=True,
    )
    headroom_share: float = key(
        0.05, "Minimum share of a volume that always stays usable", least=0, most=0.9, live=True
    )
    headroom_bytes: int = key(
        1 << 30,
        "Minimum number of bytes of a volume that always stay usable, if headroom_share is fewer",
        least=0,
        most=BYTES,
        live=True,
    )
    least_bytes: int = key(1 << 20, "Minimum size in bytes of a replica that is moved", least=1, most=BYTES, live=True)
    throttle_bytes_per_s: int = key(
        50_000_000,
        "Maximum number of bytes per second that all moves of a broker write; 0: no limit",
        least=0,
        most=BYTES,
        live=True,
    )
    at_once: int = key(1, "Maximum number of concurrent moves per broker", least=1, most=100, live=True)
    open_dirs: int = key(
        1, "Minimum number of directories per broker that stay open to new partitions", least=1, most=COUNT, live=True
    )
    band: float = key(
        0.1,
        "A directory stays open if its usable bytes are lower than those of the best directory by at most this share",
        least=0,
        most=1,
        live=True,
    )
    exclude: list[str] = key(list, "Topics that are not moved: names or /regular expressions/", live=True)
    exclude_dirs: list[str] = key(
        list, "Directories (absolute paths) that are neither source nor target of a move", live=True
    )
    windows: list[str] = key(
        list, "Time windows in UTC in which moves may start, for example 22:00-06:00; empty: at any time", live=True
    )


def within(windows: list[str], now_ms: int) -> bool:
    """Whether now is in one of the windows; always true without windows. A window may span midnight."""
    if not windows:
        return True
    minute = now_ms // 60_000 % 1_440
    for window in windows:
        match = WINDOW.fullmatch(window)
        if match:
            begin, end = (int(match[at]) * 60 + int(match[at + 1]) for at in (1, 3))
            if begin <= minute < end or (end <= begin and (minute >= begin or minute < end)):
                return True
    return False


def check(draft: Draft) -> Iterator[str]:
    """The problems of all entries: key, expected, found."""
    clusters = draft.table(KafkaCluster)
    for name, entry in draft.table(LogDirsSettings).items():
        if name not in clusters:
            names = ", ".join(clusters) or "nothing is there"
            yield f"logdirs.{name}: expected one of kafka: {names}; found {shown(name)}"
        if entry:
            yield from check_entry(name, entry, draft)


def check_entry(name: str, entry: LogDirsSettings, _draft: Draft) -> Iterator[str]:
    """The problems of one entry by itself."""
    path = f"logdirs.{name}"
    yield from problems_of(f"{path}.exclude", entry.exclude)
    for place in entry.exclude_dirs:
        if not place.startswith("/"):
            yield f"{path}.exclude_dirs: expected absolute paths, as the broker reports them; found {shown(place)}"
    for window in entry.windows:
        match = WINDOW.fullmatch(window)
        if not match or match.groups()[:2] == match.groups()[2:]:
            yield f"{path}.windows: expected two different times, for example 22:00-06:00; found {shown(window)}"


LOGDIRS = Section("logdirs", LogDirsSettings, entries=("east",), complete=True, check=check, check_entry=check_entry)
