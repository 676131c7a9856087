"""Rules of the read priority of brokers: verdicts on namespaces and topics, and the actions of Trueup."""

from trueup.state.common.rules import Rule, Rules, Verdict

_D, _B, _U = Verdict.DRIFTED, Verdict.BLOCKED, Verdict.UNKNOWN

READ_RULES = Rules(
    [
        Rule(
            "read_priority.differs",
            _D,
            "the read priority in force is not the declared one",
            "The field managedLedgerOffloadedReadPriority of the level at which read_priority.declared declares it, or "
            "what that level inherits, has another value.",
            "The field is set in the policy of the namespace or topic; all other fields stay as they are. The change "
            "is complete when a broker shows it.",
        ),
        Rule(
            "read_priority.masked",
            _B,
            "a topic's own policy masks the declared read priority of its namespace",
            "The priority is declared for the namespace, and the policy of the topic sets another one. In versions "
            "before 3.3.7 and 4.0.5 every policy object prefers tiered storage unless it is told otherwise (PR 24151).",
            "Nothing is changed: the policy of the topic is not declared. Remove the field from it, or "
            "declare the topic in read_priority.declared.",
        ),
        Rule(
            "read_priority.would-stall",
            _D,
            "a broker would read ledgers of a topic from a tier that does not have them",
            "With the priority in force brokers open at least one ledger from a tier that does not have it in full, "
            "and do not fall back. With the other priority they open every ledger from a tier that has it.",
            "The other priority is set in the policy of the topic. It returns when the preferred tier has been whole "
            "for read_priority.settle_looks passes and read_priority.settle_s.",
        ),
        Rule(
            "read_priority.switched",
            _D,
            "the read priority of a topic is switched until its preferred tier is whole",
            "Trueup switched the priority of the topic because it would stall. The plan shows the return once the "
            "preferred tier has been whole for long enough.",
            "Restore the missing objects or ledgers. The field then gets the value that it had before the switch.",
        ),
        Rule(
            "read_priority.no-priority",
            _B,
            "a topic would stall with either read priority",
            "Some ledgers are whole only in BookKeeper and others only in tiered storage, or a ledger that counts as "
            "deleted in BookKeeper is not whole in tiered storage. A priority applies to all ledgers of a topic.",
            "Nothing is changed. Restore one tier. `trueup read` reads the topic: it decides for each ledger.",
        ),
        Rule(
            "read_priority.lost",
            _B,
            "no tier has a ledger of a topic in full",
            "BookKeeper and tiered storage both miss the ledger or parts of it. Consumers stall there, or skip it if "
            "autoSkipNonRecoverableData is set.",
            "Nothing is changed. Restore the objects or the ledger. `trueup read --missing skip` reads the rest.",
        ),
        Rule(
            "read_priority.not-ready",
            _B,
            "the declared read priority would stall topics",
            "With the declared priority brokers would open ledgers from a tier that does not have them in full, or "
            "that was not checked yet. With the priority in force they do not.",
            "The priority is set when the tier has these ledgers. The reason names the first of them.",
        ),
        Rule(
            "read_priority.deletion-due",
            _B,
            "a broker soon deletes a BookKeeper ledger whose tiered copy is not whole",
            "The delay managedLedgerOffloadDeletionLagMs ends within read_priority.lag_warning_s, or is negative: the "
            "admin API describes that as never, but brokers then delete at once (some versions). They do not verify "
            "the objects before they delete the BookKeeper ledger.",
            "Nothing is changed. Raise the delay in the policy, restore the objects, or offload the ledger again.",
        ),
        Rule(
            "read_priority.unknown",
            _U,
            "the read priority or the copies of a topic are not known",
            "The admin API does not respond, a policy is not readable, brokers differ, or copies were not checked yet. "
            "The reason shows which.",
            "Nothing is changed until it is known. `trueup doctor` checks the addresses, the token and the rights.",
        ),
        Rule(
            "read_priority.changed-meanwhile",
            _B,
            "another client changed a policy during a change of Trueup",
            "The policy was not what it was when the change was decided, or not what was written when it was read "
            "back.",
            "Nothing is overwritten. The change is decided again from the present policy after five minutes.",
        ),
        Rule(
            "read_priority.refused",
            _B,
            "a broker refused a change of a policy, or it had no effect",
            "The reason shows the response of the broker. The most common causes are missing rights and "
            "topicLevelPoliciesEnabled=false.",
            "The change is planned again after five minutes.",
        ),
        Rule(
            "read_priority.cached",
            _D,
            "the broker of a topic may have cached handles of ledgers",
            "The priority of the topic was switched, and read_priority.unload is true. A broker keeps the handles of "
            "ledgers that it opened before.",
            "The topic is unloaded once. Its clients reconnect.",
        ),
    ]
)
