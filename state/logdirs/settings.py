"""Log directories of a Kafka cluster, as an operator declares how they are to be kept."""

import re
from dataclasses import dataclass

from trueup.state.common.options import BYTES, COUNT, MODES, YEAR_S, key

PARTITION, SIZE = "partition", "size"
"""The strategies of KIP-178."""
WINDOW = re.compile(r"([01]\d|2[0-3]):([0-5]\d)-([01]\d|2[0-3]):([0-5]\d)")


@dataclass(frozen=True, slots=True)
class LogDirs:
    """Log directories of one cluster of kafka:, kept level by size."""

    mode: str = key(
        "observe",
        "observe: nothing is changed; approve: moves and cordons wait for `trueup approve`; enforce",
        one_of=MODES,
        live=True,
    )
    strategy: str = key(
        SIZE,
        "log.directory.select.strategy of KIP-178 for new partitions: partition leaves them to the broker; size keeps "
        "them out of all directories but those with the most usable bytes (Kafka 4.3 or newer)",
        one_of=(PARTITION, SIZE),
        live=True,
    )
    poll_s: float = key(10.0, "how often every broker is asked", least=1, most=YEAR_S)
    paused: bool = key(False, "start nothing new; moves under way go on", live=True)
    target_skew: float = key(
        0.1, "share by which the fullest directory may be fuller than the emptiest", least=0.01, most=1, live=True
    )
    headroom_share: float = key(0.05, "share of a volume that stays usable at any moment", least=0, most=0.9, live=True)
    headroom_bytes: int = key(1 << 30, "and at least so many bytes", least=0, most=BYTES, live=True)
    least_bytes: int = key(1 << 20, "smaller replicas are not worth a move", least=1, most=BYTES, live=True)
    throttle_bytes_per_s: int = key(
        50_000_000, "what all moves of a broker write in a second at most; 0: no limit", least=0, most=BYTES, live=True
    )
    at_once: int = key(1, "moves of one broker at the same time", least=1, most=100, live=True)
    open_dirs: int = key(
        1, "directories that stay open to new partitions whatever they hold", least=1, most=COUNT, live=True
    )
    band: float = key(
        0.1, "share of usable bytes by which an open directory may be behind the best", least=0, most=1, live=True
    )
    exclude: list[str] = key(list, "topics that are not moved: names or /regular expressions/", live=True)
    exclude_dirs: list[str] = key(
        list, "directories (absolute paths) that are neither given to nor taken from", live=True
    )
    windows: list[str] = key(list, "when moves may start, as 22:00-06:00 in UTC; none: at any time", live=True)


def within(windows: list[str], now_ms: int) -> bool:
    """Whether now is in one of the windows; without any it always is. One may pass midnight."""
    if not windows:
        return True
    minute = now_ms // 60_000 % 1_440
    for window in windows:
        found = WINDOW.fullmatch(window)
        if found:
            begin, end = (int(found[at]) * 60 + int(found[at + 1]) for at in (1, 3))
            if begin <= minute < end or (end <= begin and (minute >= begin or minute < end)):
                return True
    return False
