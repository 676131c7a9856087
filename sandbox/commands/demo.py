"""trueup demo."""

import signal
from pathlib import Path

import click


@click.group(short_help="Run a demo on real servers.")
def demo() -> None:
    """Run a demo on real servers that the command starts on this machine and stops at the end.

    \b
    Example:  trueup demo rack-drill
    """
    # Its servers and files go at SIGTERM as at Ctrl-C.
    signal.signal(signal.SIGTERM, signal.default_int_handler)


@demo.command("rack-drill", short_help="Lose one rack, then the other: no data is lost with Trueup.")
@click.option("--control", is_flag=True, help="Run only the drill without Trueup, which loses data.")
def rack_drill(control: bool) -> int:
    """Run the disaster drill of BookKeeper's BP-54 on real servers: kill rack 2, restart it, kill rack 1, and read
    every entry of every closed ledger. The drill runs first with Trueup, then without.

    Takes less than 5 minutes on 2 cores after the first download. Exits with 0 only if no entry was lost with Trueup
    and some were lost without.

    \b
    Example:  trueup demo rack-drill
    """
    from trueup.sandbox.demo import rack_drill as drill

    return drill.main(control=control)


@demo.command("failover", short_help="Fail over from a killed Kafka cluster to another one.")
def failover() -> int:
    """Replicate a topic between two Kafka clusters in both directions, and kill the active cluster. Its producers and
    its consumer group continue on the other cluster, the killed cluster returns, and both logs are compared. Then the
    cluster is killed again, returns without its data, and is refilled from the other one while producers write; both
    logs are compared again.

    Takes less than 4 minutes on 2 cores after the first download. Exits with 0 only if no acknowledged record was lost
    or duplicated, the group skipped no record, and no record was copied in a loop.

    \b
    Example:  trueup demo failover
    """
    from trueup.sandbox.demo import failover as drill

    return drill.main()


@demo.command("rocketmq", short_help="Fail over from a killed RocketMQ cluster to another one, with a copy in Kafka.")
def rocketmq() -> int:
    """Replicate a topic between two RocketMQ clusters in both directions, and to Kafka. Orders are FIFO, delayed,
    transactional and compressed messages. The broker of the active cluster is killed; its writers and a Java push
    consumer continue on the other cluster, and it returns. Then every message of all three clusters is compared.

    Takes less than 3 minutes on 2 cores after the first download. Exits with 0 only if no acknowledged message was
    lost, duplicated, altered or put out of order, the group skipped none, and none was copied in a loop.

    \b
    Example:  trueup demo rocketmq
    """
    from trueup.sandbox.demo import rocketmq as drill

    return drill.main()


@demo.command("leak", short_help="Delete ledgers that a Pulsar broker no longer references.")
def leak() -> int:
    """Kill a real Pulsar broker while it deletes ledgers that its topics no longer list. Trueup reports the
    unreferenced ledgers, waits, checks again, deletes them, and queries every bookie, next to a live writer.

    Takes less than 3 minutes on 2 cores after the first download. Exits with 0 only if all unreferenced ledgers are
    deleted, all ledgers that must only be reported still exist, and every message of every topic can be read.

    \b
    Example:  trueup demo leak
    """
    from trueup.sandbox.demo import leak as drill

    return drill.main()


@demo.command("reads", short_help="A consumer that stalls at a lost copy goes on; topics are read without a broker.")
def reads() -> int:
    """Delete the objects of an offloaded ledger. A Java consumer stalls there, because brokers do not fall back. Trueup
    finds it, and after an approval the topic is read from BookKeeper and the same consumer goes on. The objects return,
    and the priority with them. Then the broker is stopped, and `trueup read` reads the topic.

    Takes less than 3 minutes on 2 cores after the first download. Exits with 0 only if all of that happened.

    \b
    Example:  trueup demo reads
    """
    from trueup.sandbox.demo import reads as drill

    return drill.main()


@demo.command("logdirs", short_help="Balance three disks of different size under one broker.")
@click.option(
    "--picture",
    type=click.Path(path_type=Path),
    metavar="FILE",
    default="trueup-logdirs.svg",
    show_default=True,
    help="File for the picture of the disks.",
)
def logdirs(picture: Path) -> int:
    """Balance the log directories of a broker with three small disks. With the broker's own rule the smallest disk is
    nearly full while the largest is nearly empty. Trueup moves replicas under a throttle until the disks are balanced,
    and places new partitions where space is free.

    Takes about a minute on 2 cores after the first download. The disks are tmpfs, mounted as root or in a namespace of
    the broker. Exits with 0 only if the disks are balanced, no data was lost and no throttle remains.

    \b
    Example:  trueup demo logdirs
    """
    from trueup.sandbox.demo import logdirs as drill

    return drill.main(picture)
