"""Rules of links between clusters: verdicts, actions of Trueup, and options of an operator.

`state.placement.rules` has the rules of ledgers. Findings of ledgers store a rule's code; those of links and log
directories store its id.
"""

from trueup.state.common.rules import Rule, Rules, Verdict

_D, _B, _U = Verdict.DRIFTED, Verdict.BLOCKED, Verdict.UNKNOWN

LINK_RULES = Rules(
    [
        Rule(
            "replication.retention-outran",
            _B,
            "the source deleted records before they were copied",
            "The log of a source partition starts after the position of the copy: retention, or a client that deleted "
            "records, was faster than the link. The count is in offsets, so it includes control records.",
            "The copy continues at the start of the log, and the offsets are counted as lost. Increase the retention "
            "of the source, the number of tasks or the rate limit.",
        ),
        Rule(
            "replication.topic-recreated",
            _B,
            "the source topic was deleted and recreated",
            "The topic has another id than the topic whose records were copied. Its offsets started again at 0 and "
            "belong to other records, so the offset map is not valid. The records copied before remain at the target.",
            "The partitions of the topic stop. If a link copies in the opposite direction, refill that link first: it "
            "restores the lost records and restarts this link. Otherwise, also if the topic was recreated on both "
            "sides, `trueup link reset NAME --topic TOPIC --to earliest --yes` copies the new topic after the old "
            "records; delete the target topic first if it must contain only the new ones. `trueup describe link` shows "
            "the commands.",
        ),
        Rule(
            "replication.topic-gone",
            _B,
            "the source topic does not exist",
            "The link copied the topic before, or its settings name the topic, and the source does not have it. A "
            "topic that the link's user must not describe is not reported as missing: its partitions are stopped.",
            "Nothing of the topic is copied and nothing is deleted at the target. If the topic was deleted on purpose, "
            "add it to exclude of the link. The link continues when the topic returns; a recreated topic has another "
            "id.",
        ),
        Rule(
            "replication.source-lost-records",
            _B,
            "the source has fewer records than were copied",
            "In two consecutive checks a source partition ended before the position of the copy, under the same topic "
            "id. The source lost acknowledged records, for example by an unclean leader election or a restored disk. "
            "New records reuse offsets that the offset map assigns to other records.",
            "The partition stops. The target still has the lost records; `trueup link reset NAME --partition PARTITION "
            "--to OFFSET --yes`, with the current end of the source partition, copies the records written from then "
            "on.",
        ),
        Rule(
            "replication.target-recreated",
            _B,
            "the target topic was deleted and recreated",
            "The target topic has another id than the topic to which the link wrote, so the copied records are lost "
            "there.",
            "The partitions of the topic stop. `trueup link refill NAME` copies all records that the source still has, "
            "including those that originated at the target; `trueup link reset NAME --topic TOPIC --to latest --yes` "
            "skips the past records.",
        ),
        Rule(
            "replication.target-replaced",
            _B,
            "the target lost its data",
            "The target cluster has another id, or all topics to which the link wrote are missing, recreated or empty. "
            "The copied records are lost there, and so are the records that originated at that cluster.",
            "All partitions of the link stop. `trueup link refill NAME` shows what the source holds of them. With "
            "--yes it copies all of that to the target, including the records that originated there, and the opposite "
            "link restarts. `trueup link reset NAME --topic TOPIC --to latest --yes` skips the past records.",
        ),
        Rule(
            "replication.target-gone",
            _B,
            "the target topic does not exist",
            "The link wrote to the topic, and in two consecutive checks the target did not have it or did not show it "
            "to the link's user.",
            "The partitions of the topic stop. If the topic is recreated, also by the link if it aligns partitions, it "
            "is a different topic: `trueup link refill NAME` fills it.",
        ),
        Rule(
            "replication.target-lost-records",
            _B,
            "the target has fewer records than were acknowledged",
            "In two consecutive checks a target partition ended before records that it had acknowledged, under the "
            "same topic id, for example after an unclean leader election or with a restored disk.",
            "The partition stops. `trueup describe link` shows the command that copies from the first lost record on.",
        ),
        Rule(
            "replication.target-written",
            _B,
            "other clients write to the target partition",
            "The target contains records between the copied ones that no link wrote, and no link copies this topic in "
            "the opposite direction. These records exist on one side only, and groups that move to the target read "
            "them.",
            "The copy continues and counts these records. Revoke the write permission of other clients, copy into "
            "another topic, or declare the opposite link.",
        ),
        Rule(
            "replication.partition-stopped",
            _B,
            "a partition requires an operator",
            "The target rejected a record or the topic, a permission is missing, or a rule stopped the partition. Its "
            "error shows the cause. Other partitions of the link continue.",
            "Nothing of the partition is copied. The link retries every half minute, so it is sufficient to remove the "
            "cause. `failures` of the link configures the handling of rejected records.",
        ),
        Rule(
            "replication.partition-failing",
            _U,
            "a partition is being retried",
            "A broker did not respond, a leader moved, or a request failed with an error that may be temporary. The "
            "error of the partition shows the cause.",
            "The link retries with increasing delays. No record is lost or duplicated.",
        ),
        Rule(
            "replication.refused",
            _B,
            "the link must not copy",
            "Source and target are the same cluster, or records would arrive on two routes and be duplicated.",
            "The link copies nothing. The message names the settings that must change.",
        ),
        Rule(
            "replication.loop-failing",
            _U,
            "alignment or groups of a link fail",
            "Settings, ACLs and topics of both clusters could not be compared, or offsets of groups could not be read. "
            "The message shows the cause. Records are copied nevertheless, except into topics that were not compared "
            "yet.",
            "Trueup retries every few seconds. If a permission is missing, the message names it.",
        ),
        Rule(
            "replication.awaiting-approval",
            _B,
            "records wait for an operator's approval",
            "The mode of the link is approve, and the target must be changed before the first record of a topic: the "
            "topic does not exist there, or its settings would delete or reject the records.",
            "Nothing of these topics is copied. `trueup plan` lists the changes, `trueup approve` approves them; other "
            "topics continue.",
        ),
        Rule(
            "replication.no-topics",
            _B,
            "the link has no topic",
            "The source responds, and none of the topics that it shows to the link's user matches topics and exclude "
            "of the link. A topic that the user must not describe is not shown.",
            "Correct topics of the link, or grant its user DESCRIBE and READ on the topics.",
        ),
        Rule(
            "replication.starting",
            _U,
            "a partition is not copied yet",
            "No task has copied the partition in this run of the application. The message shows what is missing: a "
            "partition at the target, a comparison of both clusters, or the first report of a task.",
            "No action is needed for slow_s of the link. After that the link is slow, and after stalled_s stalled.",
        ),
        Rule(
            "replication.catching-up",
            _U,
            "existing records are being copied",
            "The partition contains records that existed before its copy started or resumed, and not all of them are "
            "copied. Their timestamps are not considered.",
            "The copy continues. More tasks or a higher rate limit make it faster. If nothing is copied, the link "
            "becomes slow, then stalled.",
        ),
        Rule(
            "replication.slow",
            _B,
            "records arrive late",
            "A record has waited to be copied, or the newest heartbeat that arrived is old, for longer than slow_s of "
            "the link. The waiting time starts when the record is first observed at the source.",
            "No automatic action. More tasks, a higher rate limit or larger requests help if the link is the "
            "bottleneck; `trueup describe link` shows which partitions lag.",
        ),
        Rule(
            "replication.stalled",
            _U,
            "nothing is copied",
            "For longer than stalled_s of the link, pending records were not copied, no heartbeat arrived, or no task "
            "reported.",
            "No automatic action. The reasons name the partition or task; `trueup doctor` checks both clusters.",
        ),
        Rule(
            "replication.down",
            _U,
            "a cluster does not respond",
            "The source or the target of the link is unreachable, or rejects the authentication of the link's user.",
            "The link retries and resumes at its exact position. Groups may be moved to the target: their offsets "
            "there correspond to the last records that arrived.",
        ),
        Rule(
            "replication.group-untranslated",
            _U,
            "the target offset of a group is not known",
            "The group's offset is before the beginning of the offset map, where the source still has records that "
            "were not copied; or nothing has been copied yet; or the partition is stopped; or the journal lost the "
            "part of the offset map that contains the offset; or another link copies records to the topic that do not "
            "come to the source; or it is a share group (KIP-932), which has no offset per partition.",
            "Nothing is committed for the group. An offset after the last copied record is committed when the records "
            "have arrived. An offset before the first record of the source is translated as that record. For an offset "
            "before the map, and where another link copies to the topic, an operator must choose; a share group starts "
            "at the target by its share.auto.offset.reset.",
        ),
        Rule(
            "alignment.topic-missing",
            _D,
            "a topic is missing at the target",
            "The link copies a topic that does not exist at the target, and nothing of it can be copied until it does.",
            "The topic is created with the partitions and settings of its source, before the first record. Without "
            "partitions in align of the link, create it yourself.",
        ),
        Rule(
            "alignment.records-would-go",
            _D,
            "the target would delete or change the copied records",
            "Retention, compaction, size limit or timestamp settings of the target differ from the source's. Copied "
            "records keep their timestamps, so the target would delete or reject them, or change their timestamps.",
            "The settings, including the source's defaults, are copied before any record. List retention and limits in "
            "config_exclude of the link to leave them to the target.",
        ),
        Rule(
            "alignment.partitions-fewer",
            _D,
            "the target has fewer partitions",
            "The source topic has grown. A record keeps its partition number, so records of the new partitions cannot "
            "be written.",
            "Partitions are added to the target topic. Partitions cannot be removed, so a target with more partitions "
            "is not changed.",
        ),
        Rule(
            "alignment.settings-differ",
            _D,
            "a setting of a topic differs",
            "A setting of the source topic has another value at the target, or the target has a setting that the "
            "source does not have, or no longer has.",
            "The setting is set or removed. config_exclude of the link lists settings that are not copied.",
        ),
        Rule(
            "alignment.origin-unknown",
            _B,
            "a topic's settings differ, and either side may be its origin",
            "Links copy the topic in both directions, and none of them created it, because clients created it on both "
            "clusters; or both of them created it, each after a loss, and the journal does not show which was the "
            "last. Settings are copied only from the origin of a topic to its copy.",
            "No setting is changed on either side, and the copy continues. Set the same values on both topics.",
        ),
        Rule(
            "alignment.right-missing",
            _D,
            "an ACL is missing at the target",
            "An ACL of the source allows or denies reading a topic or using a group of the link, and the target does "
            "not have it. WRITE is allowed at the target only if a link copies in the opposite direction; ALTER and "
            "DELETE never.",
            "The ACL is added at the target. Without acls in align of the link, ACLs are not changed.",
        ),
        Rule(
            "alignment.right-revoked",
            _D,
            "an ACL was revoked at the source",
            "The target has an ACL that this link created, or that both clusters had, and the source no longer has it.",
            "The ACL is also revoked at the target. ACLs that only the target ever had remain.",
        ),
        Rule(
            "replication.group-behind",
            _D,
            "the target offset of a group is behind its source offset",
            "The group has since committed a higher offset at its source, the records are at the target, and the group "
            "has no members there.",
            "The translated offsets are committed at the target, exactly and never backwards. In mode approve this "
            "waits for `trueup approve`; in mode observe nothing is committed.",
        ),
        Rule(
            "alignment.group-differs",
            _D,
            "a setting of a consumer group differs",
            "A consumer group of the link has another setting at the target, which matters when it moves there. "
            "Compared are groups without members at the target; if a link leads back, only those with members at the "
            "source.",
            "The setting of the source is set at the target. Leave groups out of align of the link, or list the "
            "setting in config_exclude, to keep the one of the target.",
        ),
        Rule(
            "replication.paused",
            _B,
            "a link or some of its topics are paused",
            "An operator paused the link, or some of its topics. Their records are not copied, and wait at the source, "
            "which may delete them by its retention.",
            "`trueup link resume NAME`, with --topic for a topic, continues the copy at its position.",
        ),
    ]
)
