"""Rules of log directories: verdicts on a broker, the actions of Trueup, and the options of an operator."""

from trueup.state.common.rules import Rule, Rules, Verdict

_D, _B, _U = Verdict.DRIFTED, Verdict.BLOCKED, Verdict.UNKNOWN

LOGDIR_RULES = Rules(
    [
        Rule(
            "logdirs.uneven",
            _D,
            "the directories of a broker are unevenly full",
            "The fullest volume of the broker is fuller than the emptiest by more than target_skew, as a share of "
            "their size, with all moves in progress complete. Kafka places partitions by their number and never by "
            "their size.",
            "Replicas are moved between directories of the broker under the throttle: as few bytes as reach the "
            "target, at_once moves at a time. `trueup plan` shows the bytes and the effect of each move.",
        ),
        Rule(
            "logdirs.steer",
            _D,
            "new partitions may be placed in a fuller directory",
            "The strategy is size, and a directory with fewer usable bytes than the best one is open to new "
            "partitions.",
            "The directory is cordoned (KIP-1066), and opened again when it is among the best. The last open directory "
            "of a broker is never cordoned, and cordons set by other clients are not changed.",
        ),
        Rule(
            "logdirs.no-move",
            _B,
            "the directories are unevenly full, and no move helps",
            "No replica that may be moved is large enough to matter and small enough to fit: the headroom, excluded "
            "topics and directories, and directories cordoned by other clients leave no possible move.",
            "Nothing is moved. A lower headroom or least_bytes, fewer exclusions, or a larger disk changes this. To "
            "move replicas to other brokers, use another tool.",
        ),
        Rule(
            "logdirs.headroom",
            _B,
            "a directory has fewer usable bytes than its headroom",
            "The usable bytes of a volume, minus the bytes that moves in progress have yet to write, are below "
            "headroom_share or headroom_bytes. A full disk takes its directory offline.",
            "Nothing is moved into the directory, and Trueup's moves into it are cancelled when half of the headroom "
            "is used. Replicas are moved out where this helps. Reduce retention or add disk space.",
        ),
        Rule(
            "logdirs.offline",
            _B,
            "a directory is offline",
            "DescribeLogDirs returns KAFKA_STORAGE_ERROR for the directory. While one directory is offline the broker "
            "refuses every move, and the contents of the directory are unknown.",
            "Nothing is moved on this broker. Repair or remove the disk, and restart the broker.",
        ),
        Rule(
            "logdirs.sizes-unknown",
            _U,
            "the broker does not report the sizes of its directories",
            "Brokers before 3.3 do not report them (KIP-827). An unknown size is never interpreted as an empty or a "
            "full disk.",
            "The broker selects the directories of new partitions, and nothing is moved. Upgrade the broker.",
        ),
        Rule(
            "logdirs.unseen",
            _U,
            "the broker cannot be observed",
            "The broker does not respond, or its response is empty because the user lacks DESCRIBE on the cluster. An "
            "empty response is never interpreted as an empty broker.",
            "Nothing is changed on the broker. Trueup continues to poll it, and reverts its own settings when the "
            "broker responds again.",
        ),
        Rule(
            "logdirs.cannot-cordon",
            _B,
            "the broker does not support cordoned directories",
            "The strategy is size, and the broker or its metadata.version is older than 4.3 and does not support "
            "cordoned directories (KIP-1066).",
            "The broker places new partitions by their number. A topic created with `trueup topic create` uses "
            "selected directories on any version, and uneven directories are balanced by moves.",
        ),
        Rule(
            "logdirs.move-forgotten",
            _D,
            "the broker forgot a move",
            "The replica is in its source directory and no copy is in progress. A broker that is killed when it starts "
            "a copy finds a copy without a topic id at its next start, and renames it as stray.",
            "The move is ordered again while it is part of the plan. No data is lost: the replica itself was not "
            "changed.",
        ),
        Rule(
            "logdirs.move-refused",
            _B,
            "the broker refused a move",
            "The error of the broker shows the reason: a cordoned or unknown directory, a missing permission, or a "
            "name that is too long.",
            "The move is not retried for five minutes; other moves of the plan continue.",
        ),
        Rule(
            "logdirs.cannot-change",
            _B,
            "the broker can be observed but not changed",
            "Setting a throttle or a cordon failed, or the journal did not accept the record that must precede it. The "
            "reason shows which, and the error.",
            "Nothing is moved on the broker. Trueup retries at each poll, and a cordon after ten minutes. The most "
            "common cause is a missing ALTER_CONFIGS permission on the cluster.",
        ),
    ]
)
