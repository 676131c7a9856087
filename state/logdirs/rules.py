"""Rules of log directories: what Trueup says of a broker, what it does then, and what an operator can do."""

from trueup.state.common.rules import Rule, Rules, Verdict

_D, _B, _U = Verdict.DRIFTED, Verdict.BLOCKED, Verdict.UNKNOWN

LOGDIR_RULES = Rules([
    Rule(
        "logdirs.uneven", _D, "the directories of a broker are unevenly full",
        "The fullest volume of the broker is fuller than the emptiest by more than target_skew, as shares of their "
        "size, once the moves under way are done. Kafka places partitions by their number and never by their size.",
        "Replicas are moved between directories of the broker, as few bytes as reach the target, one at a time and "
        "under the throttle. `trueup plan` shows each with its bytes and what it brings.",
    ),
    Rule(
        "logdirs.steer", _D, "new partitions would go to a fuller directory",
        "The strategy is size, and a directory with less usable bytes than the best is open to new partitions.",
        "It is cordoned (KIP-1066), and opened again when it is among the best. The last open directory of a broker is "
        "never cordoned, and cordons of others stay as they are.",
    ),
    Rule(
        "logdirs.no-move", _B, "the directories are unevenly full, and no move helps",
        "No replica that may move is large enough to count and small enough to fit: headroom, excluded topics and "
        "directories, and directories that others cordoned leave nothing.",
        "Nothing more is moved. A lower headroom or least_bytes, fewer exclusions, or a larger disk changes it; moving "
        "replicas to other brokers is for other tools.",
    ),
    Rule(
        "logdirs.headroom", _B, "a directory has less room than its headroom",
        "The usable bytes of a volume, less what moves under way have yet to write, are below headroom_share or "
        "headroom_bytes. A full disk takes its directory offline.",
        "Nothing is moved there, and moves of ours to it are cancelled once half of the headroom is gone. Replicas are "
        "moved away where that helps; retention, or a larger disk, is the cure.",
    ),
    Rule(
        "logdirs.offline", _B, "a directory is offline",
        "DescribeLogDirs answers KAFKA_STORAGE_ERROR for it. While one directory is offline the broker refuses every "
        "move, and what the directory holds is not told.",
        "Nothing is moved on this broker. Mend or take out the disk, and restart the broker.",
    ),
    Rule(
        "logdirs.sizes-unknown", _U, "the broker does not tell the sizes of its directories",
        "Brokers before 3.3 do not (KIP-827). An unknown size is never taken for an empty or a full disk.",
        "New partitions are left to the broker's own rule, and nothing is moved. A newer broker changes it.",
    ),
    Rule(
        "logdirs.unseen", _U, "the broker cannot be looked at",
        "It does not answer, or its answer is empty because the user may not DESCRIBE the cluster. An empty answer is "
        "never taken for an empty broker.",
        "Nothing is changed on it. Trueup goes on asking; what it set there is taken back when it answers again.",
    ),
    Rule(
        "logdirs.cannot-cordon", _B, "the broker cannot keep new partitions out of a directory",
        "The strategy is size, and the broker is older than 4.3, or its metadata.version is: it knows no cordoned "
        "directories (KIP-1066).",
        "The broker places new partitions by their number. A topic made with `topic create` gets its directories on "
        "any version, and what becomes uneven is moved.",
    ),
    Rule(
        "logdirs.move-forgotten", _D, "the broker forgot a move",
        "The replica is where it was and no copy is under way. A broker that is killed while it "
        "begins a copy finds one without a topic id when it starts, and puts it aside as stray.",
        "The same move is ordered again as long as the plan holds it. Nothing is lost: the replica itself was never "
        "touched.",
    ),
    Rule(
        "logdirs.move-refused", _B, "the broker refused a move",
        "Its answer says why: a cordoned or unknown directory, a missing right, or a name that is too long.",
        "The same move rests for five minutes; others of the plan go on.",
    ),
    Rule(
        "logdirs.cannot-change", _B, "the broker could be looked at, and not changed",
        "Setting a throttle or a cordon failed, or the journal did not take what was to be remembered before it. The "
        "reason says which, and what was answered.",
        "Nothing moves on the broker meanwhile. It is tried again at each look, a cordon after ten minutes. What is "
        "missing most often is ALTER_CONFIGS on the cluster.",
    ),
])  # fmt: skip
