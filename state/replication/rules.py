"""Rules of links between clusters: what Trueup says of them, what it does then, and what an operator can do.

`state.placement.rules` holds those of ledgers. Findings carry those as codes; what is said of links and directories
carries ids.
"""

from trueup.state.common.rules import Rule, Rules, Verdict
from trueup.state.deletion.rules import LEAK_RULES
from trueup.state.logdirs.rules import LOGDIR_RULES
from trueup.state.placement.rules import RULES

_D, _B, _U = Verdict.DRIFTED, Verdict.BLOCKED, Verdict.UNKNOWN

LINK_RULES = Rules([
    Rule(
        "replication.retention-outran", _B, "the source deleted records before they were copied",
        "The log of a source partition starts after the place where its copy stands: retention, or somebody who "
        "deleted records, was faster than the link. The count is of offsets, so it holds control records too.",
        "The copy goes on at the start of the log and counts the offsets as lost. Longer retention at the source, more "
        "tasks or a higher rate keep the link ahead.",
    ),
    Rule(
        "replication.topic-recreated", _B, "the source topic was deleted and made anew",
        "The topic has another id than the one whose records were copied. Its offsets began again at 0 and mean other "
        "records, so the offset map no longer holds. What was copied before stays at the target.",
        "The topic's partitions stop. Where a link copies back, refill that one first: it brings the lost records "
        "back and begins this link anew. Else `trueup link reset NAME --to earliest` copies the new topic behind the "
        "old records; delete the target topic first where it is to hold only the new ones.",
    ),
    Rule(
        "replication.topic-gone", _B, "the source topic is not there any more",
        "The topic was copied before and the source no longer has it, or no longer shows it to the link's user.",
        "Nothing of it is copied and nothing is deleted at the target. The topic's return ends it; made anew it has "
        "another id.",
    ),
    Rule(
        "replication.source-lost-records", _B, "the source has fewer records than were copied",
        "Twice in a row a source partition ended before the place where its copy stands, under the same topic id. The "
        "source lost records that it had acknowledged: an unclean leader election, or a restored disk. New records "
        "take offsets that the map gives to others.",
        "The partition stops. The target still has the lost records; `trueup link reset NAME --to OFFSET`, with the "
        "end that the source has now, copies what is written from then on.",
    ),
    Rule(
        "replication.target-recreated", _B, "the target topic was deleted and made anew",
        "The target topic has another id than the one that was written to, so what was copied is gone there.",
        "The topic's partitions stop. `trueup link refill NAME` copies again all that the source still has, also what "
        "was born at the target; `trueup link reset NAME --to latest` leaves the past out.",
    ),
    Rule(
        "replication.target-replaced", _B, "the target lost its data",
        "The cluster that the link writes to has another id, or all of the topics that the link wrote to are gone, "
        "made anew or empty there. What was copied is gone, with what was born at that cluster.",
        "All partitions of the link stop. `trueup link refill NAME` shows what the source holds of it. With --yes it "
        "copies all of that to the target, also what was born there, and the opposite link begins anew. `trueup link "
        "reset NAME --to latest` leaves the past out.",
    ),
    Rule(
        "replication.target-gone", _B, "the target topic is not there any more",
        "The link wrote to the topic, and twice in a row the target did not have it, or did not show it to the link's "
        "user.",
        "The topic's partitions stop. Made anew, by the link where it aligns partitions, it is another topic: `trueup "
        "link refill NAME` fills it.",
    ),
    Rule(
        "replication.target-lost-records", _B, "the target has fewer records than were acknowledged",
        "Twice in a row a target partition ended before records that it had acknowledged, under the same topic id: an "
        "unclean leader election, or a restored disk.",
        "The partition stops. The finding names the source offset of the first record that is gone; `trueup link reset "
        "NAME --to OFFSET` copies from there.",
    ),
    Rule(
        "replication.target-written", _B, "others write to the target partition",
        "The target holds records between the copied ones that no link wrote, and no link copies this topic back. "
        "Those records are on one side only, and groups that move to the target meet them.",
        "The copy goes on and counts them. Take the right to write from others, copy into another topic, or declare "
        "the opposite link.",
    ),
    Rule(
        "replication.partition-stopped", _B, "a partition needs an operator",
        "The target refused a record or the topic, a right is missing, or a rule stopped the partition. Its error says "
        "which. "
        "Other partitions of the link go on.",
        "Nothing of the partition is copied. It is tried again every half minute, so taking away the cause is "
        "enough; `failures` of the link decides what becomes of refused records.",
    ),
    Rule(
        "replication.partition-failing", _U, "a partition is tried again",
        "A broker did not answer, a leader moved, or a request failed in a way that may pass. Its error says how.",
        "It is tried again with growing waits. Nothing is lost or doubled by that.",
    ),
    Rule(
        "replication.refused", _B, "the link must not copy",
        "Both ends are one cluster, records would arrive by two ways, or links that meet would use different paths: "
        "a record could come back to where it was born.",
        "The link copies nothing. The text names the keys of the configuration that have to change.",
    ),
    Rule(
        "replication.loop-failing", _U, "alignment or groups of a link fail",
        "Settings, rights and topics of both clusters could not be compared, or offsets of groups could not be read. "
        "The text says why. Records are copied all the same, except into topics that were not compared yet.",
        "It is tried again every few seconds. Where a right is missing the text names it.",
    ),
    Rule(
        "replication.awaiting-approval", _B, "records wait for an operator's approval",
        "mode of the link is approve, and a change at the target has to come before the first record of a topic: the "
        "topic is missing there, or its settings would delete or refuse what arrives.",
        "Nothing of these topics is copied. `trueup plan` lists the changes, `trueup approve` has them made; other "
        "topics go on.",
    ),
    Rule(
        "replication.no-topics", _B, "the link has no topic",
        "The source answers, and none of the topics that it shows to the link's user matches topics and exclude of the "
        "link. A topic that the user must not describe is not shown.",
        "Correct topics of the link, or give its user the right to describe and read them.",
    ),
    Rule(
        "replication.starting", _U, "a partition is not copied yet",
        "No task has copied the partition in this run of the application. The text says what it lacks: a place at the "
        "target, a comparison of both clusters, or a first report.",
        "Nothing has to be done for slow_s of the link; after that the link is slow, and after stalled_s stalled.",
    ),
    Rule(
        "replication.catching-up", _U, "records from before are being copied",
        "The partition holds records that were there when its copy began, or went on after a pause, and they are not "
        "all copied. How old their timestamps are says nothing.",
        "The copy goes on by itself. More tasks or a higher rate limit make it faster; where nothing moves the link "
        "is slow, then stalled.",
    ),
    Rule(
        "replication.slow", _B, "records arrive late",
        "A record has waited to be copied, or the newest heartbeat that arrived is old, for longer than slow_s of the "
        "link. Waits are measured from when the record was first observed at the source.",
        "Nothing is changed by itself. More tasks, a higher rate limit or larger requests help where the link is the "
        "bound; `trueup describe link` shows which partitions are behind.",
    ),
    Rule(
        "replication.stalled", _U, "nothing moves",
        "For longer than stalled_s of the link records have waited and none was copied, no heartbeat has arrived, or "
        "no task has reported.",
        "Nothing is changed by itself. The reasons name the partition or task; `trueup doctor` looks at both clusters.",
    ),
    Rule(
        "replication.down", _U, "a cluster does not answer",
        "The source or the target of the link cannot be reached, or does not let the link's user in.",
        "The link tries again and goes on exactly where it stood. Groups may be moved to the target: their offsets "
        "there are those of the last records that arrived.",
    ),
    Rule(
        "replication.group-untranslated", _U, "a group's place at the target is not known",
        "The group's offset is before the beginning of the offset map, past what was copied, or nothing was copied "
        "yet; or the group has members at the target, who decide for themselves.",
        "Nothing is committed for it. Past what was copied it is committed as soon as the records have arrived; "
        "before the map only the operator can choose.",
    ),
    Rule(
        "alignment.topic-missing", _D, "a topic is missing at the target",
        "The link copies a topic that the target does not have, and nothing of it can be copied until then.",
        "It is made with the partitions and settings of its source, before the first record. Without partitions in "
        "align of the link somebody else has to make it.",
    ),
    Rule(
        "alignment.records-would-go", _D, "what arrives at the target would not stay as it is",
        "Retention, compaction, size limit or timestamp settings of the target differ from the source's: copied "
        "records are as old as they were there, and vanish, are refused, or get another time.",
        "The settings are carried over, from the source's defaults too, before anything is copied. config_exclude of "
        "the link leaves retention and limits to the target.",
    ),
    Rule(
        "alignment.partitions-fewer", _D, "the target has fewer partitions",
        "The source topic has grown. A record keeps its partition's number, so those of new partitions have no place.",
        "The target is grown. Partitions never shrink, so a target with more of them is left as it is.",
    ),
    Rule(
        "alignment.settings-differ", _D, "a setting of a topic differs",
        "A setting that was made on the source topic has another value at the target, or the target has one that the "
        "source does not (any more).",
        "It is set, or taken off. config_exclude of the link names settings that are the target's own.",
    ),
    Rule(
        "alignment.origin-unknown", _B, "a topic's settings differ, and either side may be its origin",
        "Links copy the topic both ways, and none of them made it: it was made by hand at both ends. Settings go only "
        "from the origin of a topic to its copy.",
        "Nothing is set on either side and the copy goes on. Give both topics the same settings.",
    ),
    Rule(
        "alignment.right-missing", _D, "a right is missing at the target",
        "The source lets somebody read a topic or use a group of the link, or denies it, and the target does not. "
        "Writing is allowed at the target only where a link copies back; altering and deleting never.",
        "The right is added there. Without acls in align of the link nothing is done about rights.",
    ),
    Rule(
        "alignment.right-revoked", _D, "a right was revoked at the source",
        "The target has a right that this link brought, or that both clusters had, and the source has it no longer.",
        "It is revoked at the target too. Rights that only the target ever had are its own and stay.",
    ),
    Rule(
        "replication.group-behind", _D, "a group's place at the target is behind what it read",
        "The group has committed further at its source since, the records are at the target, and the group has no "
        "members there.",
        "Its offsets are committed at the target, translated exactly and never back. In approve that waits for "
        "`trueup approve`, in observe nothing is committed.",
    ),
])  # fmt: skip

EVERY_RULE = Rules([*RULES, *LINK_RULES, *LOGDIR_RULES, *LEAK_RULES])
