"""trueup demo."""

from pathlib import Path

import click


@click.group(short_help="See it work on real servers of its own.")
def demo() -> None:
    """See Trueup work on real servers that it starts on this machine and stops again.

    \b
    Example:  trueup demo rack-drill
    """


@demo.command("rack-drill", short_help="Lose one rack, then the other: with Trueup nothing is lost.")
@click.option("--control", is_flag=True, help="Only the same drill without Trueup, which loses data.")
def rack_drill(control: bool) -> int:
    """Run the disaster drill of BookKeeper's BP-54 on real servers: rack 2 is killed and comes back, then rack 1 is
    killed, then every entry of every closed ledger is read back. First with Trueup, then without.

    Takes under 5 minutes on 2 cores after the first download. Exits with 0 only when nothing was lost with Trueup and
    something without.

    \b
    Example:  trueup demo rack-drill
    """
    from trueup.streams.demo import rack_drill as drill

    return drill.main(control=control)


@demo.command("failover", short_help="A Kafka cluster dies; its readers and writers go on at another.")
def failover() -> int:
    """Two Kafka clusters copy a topic to each other; the one in use is killed, its writers and its consumer group go on
    at the other, and it returns. Both logs are compared. Then it dies again, returns without its data, and is refilled
    from the other while orders are written; both logs are compared again.

    Takes under 4 minutes on 2 cores after the first download. Exits with 0 only when no acknowledged record was lost,
    none stands anywhere twice, the group skipped nothing, and nothing goes round.

    \b
    Example:  trueup demo failover
    """
    from trueup.streams.demo import failover as drill

    return drill.main()


@demo.command("leak", short_help="A Pulsar broker forgets ledgers; they are found, deleted and confirmed gone.")
def leak() -> int:
    """A real Pulsar whose broker dies while it deletes ledgers that its topics no longer list, as brokers do. Trueup
    reports what was forgotten, waits, looks again, deletes, and asks every bookie, next to a live writer.

    Takes under 3 minutes on 2 cores after the first download. Exits with 0 only when everything that was forgotten is
    gone, everything that may only be reported is still there, and every message of every topic reads back.

    \b
    Example:  trueup demo leak
    """
    from trueup.streams.demo import leak as drill

    return drill.main()


@demo.command("logdirs", short_help="Three disks of different size under one broker, levelled.")
@click.option(
    "--picture", type=click.Path(path_type=Path), metavar="FILE", default="trueup-logdirs.svg", show_default=True,
    help="Where the picture of the disks goes.",
)  # fmt: skip
def logdirs(picture: Path) -> int:
    """A broker with three small disks. By its own rule the smallest is nearly full while the largest is nearly empty;
    Trueup moves replicas under a throttle until they are level, and keeps new partitions where there is room.

    Takes about a minute on 2 cores after the first download. The disks are tmpfs, mounted as root or in a name space of
    the broker's own. Exits with 0 only when they are level, nothing was lost and no throttle was left behind.

    \b
    Example:  trueup demo logdirs
    """
    from trueup.streams.demo import logdirs as drill

    return drill.main(picture)
