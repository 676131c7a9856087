"""trueup demo."""

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
    from streams.demo import rack_drill as drill

    return drill.main(control=control)
