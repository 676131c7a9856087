"""trueup sandbox: real servers on this machine, for experiments."""

import re
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
import yaml

from trueup.sandbox.policies import POLICIES, SandboxPolicy
from trueup.state.common.counts import many
from trueup.state.common.errors import Retry, Stop
from trueup.streams.terminal import options, out
from trueup.streams.terminal.options import Command
from trueup.streams.terminal.out import Column

if TYPE_CHECKING:
    from trueup.sandbox.cluster import SandboxCluster

VERSIONS = ("4.17.3", "4.18.0")
READY_S = 600.0
COLUMNS = (
    Column("SERVER", lambda r: r["server"]),
    Column("STATE", lambda r: "up" if r["alive"] else "down"),
    Column("RACK", lambda r: r["rack"]),
    Column("ADDRESS", lambda r: r["address"]),
    Column("PID", lambda r: str(r["pid"]) if r["alive"] else ""),
)


def _place(command: Command) -> Command:
    return click.option(
        "--dir",
        "root",
        type=click.Path(path_type=Path),
        default=Path("trueup-sandbox"),
        show_default=True,
        metavar="DIR",
        help="Directory of the sandbox.",
    )(command)


@click.group(short_help="Run a real BookKeeper cluster on this machine.")
def sandbox() -> None:
    """Run a real BookKeeper cluster on 127.0.0.0/8: ZooKeeper, bookies in racks, and AutoRecovery daemons.

    \b
    Example:  trueup sandbox up --detach
              trueup run -c trueup-sandbox/trueup.yaml
              trueup sandbox kill /rack2
              trueup sandbox down
    """


@sandbox.command(short_help="Start the cluster.")
@_place
@click.option(
    "--racks", default="3,3", show_default=True, metavar="N,N...", help="Number of bookies in /rack1, /rack2 and so on."
)
@click.option(
    "--autorecovery", type=click.IntRange(0, 9), default=2, show_default=True, help="Number of AutoRecovery daemons."
)
@click.option(
    "--version", type=click.Choice(VERSIONS), default=VERSIONS[0], show_default=True, help="BookKeeper version."
)
@click.option(
    "--policy",
    type=click.Choice(POLICIES),
    default=POLICIES[0],
    show_default=True,
    help="Placement policy; with another one than rack, the numbers of --racks are those of regions, zones or groups.",
)
@click.option("--kafka", is_flag=True, help="Also start a Kafka broker.")
@click.option("--rocketmq", is_flag=True, help="Also start two RocketMQ clusters, hangzhou and shanghai.")
@click.option("-d", "--detach", is_flag=True, help="Run the cluster in the background.")
def up(
    root: Path, racks: str, autorecovery: int, version: str, policy: str, kafka: bool, rocketmq: bool, detach: bool
) -> None:
    """Start the servers and keep them running until `trueup sandbox down` or Ctrl-C. The data remains in DIR, and the
    next `trueup sandbox up` uses it. The first run downloads the jars (about 110 MB).

    With --policy isolation, the bookies are in the groups group1, group2 and so on of Pulsar's znode /bookies, and
    `trueup sandbox write --group` writes to one of them. With --rocketmq, the configuration declares both clusters and
    a link from hangzhou to shanghai in mode observe.

    \b
    Example:  trueup sandbox up --racks 2,2,2 --detach
    """
    sizes = _sizes(racks)
    if _answers(root):
        raise Stop(f"none in {root}", "a running sandbox", "use it, or run `trueup sandbox down` first")
    if detach:
        words = ["--racks", racks, "--autorecovery", str(autorecovery), "--version", version, "--policy", policy]
        _leave(root, [*words, *["--kafka"] * kafka, *["--rocketmq"] * rocketmq])
        return
    from trueup.sandbox.cluster import SandboxCluster
    from trueup.sandbox.control import serve

    placed = SandboxPolicy(policy, sizes)
    with SandboxCluster(root, placed.racks, autorecovery, version, kafka, rocketmq=rocketmq, policy=placed) as cluster:
        with out.progress("starting the sandbox") as better:
            cluster.up(lambda what, done, total: better(f"{what}: {done:,} of {total:,}"))
        _configure(root, cluster)
        click.echo(_ready(root))
        serve(cluster)


def _sizes(racks: str) -> list[int]:
    words = racks.split(",")
    if not all(word.isdecimal() for word in words) or not 1 <= sum(map(int, words)) <= 100:
        raise click.BadParameter(f"expected numbers of bookies as 3,3, 1 to 100 in all; found {racks!r}")
    return [int(word) for word in words]


def _answers(root: Path) -> bool:
    from trueup.sandbox.control import Remote

    try:
        Remote(root).request("status")
    except Stop:
        return False
    return True


def _leave(root: Path, words: list[str]) -> None:
    """Start a separate process that supervises the servers, and wait until they respond."""
    root.mkdir(parents=True, exist_ok=True)
    log = root / "sandbox.log"
    command = [sys.executable, "-m", "trueup.streams.cli.main", "sandbox", "up", "--dir", str(root), *words]
    with log.open("w") as stream, out.progress("starting the sandbox") as better:
        child = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=stream, stderr=stream, start_new_session=True
        )
        deadline = time.monotonic() + READY_S
        while not _answers(root):
            if child.poll() is not None:
                raise Stop("the sandbox to start", log.read_text().strip()[-2000:] or "nothing", f"see {log}")
            better(last_line(log) or "starting the sandbox")
            if time.monotonic() > deadline:
                child.terminate()
                raise Retry("the sandbox to be up", f"not within {READY_S:.0f} s", f"see {log}")
            time.sleep(0.1)
        child.returncode = 0  # prevents Popen's ResourceWarning: nothing waits for this process any more
    click.echo(_ready(root))


def _configure(root: Path, cluster: "SandboxCluster") -> None:
    """Write a Trueup configuration for this sandbox, if none exists; an existing one is never changed."""
    path = root / "trueup.yaml"
    if path.exists():
        return
    zookeeper, daemons = cluster.zookeeper.address, cluster.autorecovery_urls
    settings = {
        "cluster": {"name": "sandbox", "zookeeper": zookeeper, "autorecovery": daemons},
        "racks": {"source": "pulsar"}
        if cluster.policy.groups
        else {"source": "script", "script": str(cluster.rack_script)},
        "placement": {"grace_s": 10, **cluster.policy.placement},
        "data_dir": str((root / "trueup").absolute()),
        **_rocketmq({name: rocketmq.address for name, rocketmq in cluster.rocketmq.items()}),
    }
    path.write_text(yaml.safe_dump(settings, sort_keys=False))


def _rocketmq(addresses: Mapping[str, str]) -> dict[str, object]:
    """The sections of RocketMQ clusters and of a link from the first to the second; none without clusters."""
    if not addresses:
        return {}
    first, second = addresses
    return {
        "rocketmq": {name: {"namesrv": at, "bit": bit} for bit, (name, at) in enumerate(addresses.items())},
        "links": {f"{first}-{second}": {"source": first, "target": second, "topics": ["/.*/"], "mode": "observe"}},
    }


def last_line(log: Path) -> str:
    """The last line of a log without the seconds of its progress: the reader counts its own."""
    lines = log.read_text(errors="replace").splitlines()
    return re.sub(r" \(\d+ s\)$", "", lines[-1]) if lines else ""


def _ready(root: Path) -> str:
    return f"The sandbox is up. Observe it with\n  trueup run -c {root / 'trueup.yaml'}"


def _asking(do: str, name: str, what: str) -> Callable[[Path, str], None]:
    """Send a request to the running sandbox and print the new status."""

    def ask(root: Path, output: str) -> None:
        from trueup.sandbox.control import Remote

        with out.progress(what):
            answer = Remote(root).request(do, name)
        _show(answer, output)

    return ask


def _show(answer: dict[str, Any], output: str) -> None:
    bookies = answer["bookies"]
    addresses = {"zookeeper": answer["zookeeper"], "kafka": answer.get("kafka")}
    addresses |= answer.get("rocketmq", {})
    addresses |= {f"autorecovery{n}": url for n, url in enumerate(answer["autorecovery"], start=1)}
    rows = [
        {
            "server": name,
            "rack": bookies.get(name, {}).get("rack"),
            "address": bookies.get(name, {}).get("id") or addresses.get(name),
            **server,
        }
        for name, server in answer["servers"].items()
    ]
    out.formatted(output, answer, rows, COLUMNS, "No servers.")


@sandbox.command(short_help="List all servers.")
@_place
@options.listing
def status(root: Path, output: str) -> None:
    """List all servers with state and address.

    \b
    Example:  trueup sandbox status
    """
    _asking("status", "", "asking")(root, output)


@sandbox.command(short_help="Write ledgers.")
@_place
@click.option(
    "-n", "--ledgers", type=click.IntRange(1, 10_000), default=10, show_default=True, help="Number of ledgers."
)
@click.option("--entries", type=click.IntRange(0, 10_000), default=20, show_default=True, help="Entries per ledger.")
@click.option("-e", "--ensemble", type=click.IntRange(1, 20), default=2, show_default=True, help="Ensemble size.")
@click.option("-q", "--quorum", type=click.IntRange(1, 20), default=2, show_default=True, help="Write quorum.")
@click.option("--group", default="", metavar="GROUP", help="Isolation group, of a sandbox with --policy isolation.")
@options.output
def write(root: Path, output: str, ledgers: int, entries: int, ensemble: int, quorum: int, group: str) -> None:
    """Write and close ledgers with BookKeeper's own client, or with Pulsar's class if a group is named.

    \b
    Example:  trueup sandbox write --ledgers 20 --ensemble 3 --quorum 2
    """
    from trueup.sandbox.control import Remote

    numbers = {"ledgers": ledgers, "entries": entries, "ensemble": ensemble, "quorum": quorum}
    with out.progress("writing"):
        written = Remote(root).request("write", group, **numbers)["written"]
    if output == "json":
        out.as_json({"written": written})
        return
    click.echo(f"wrote {many(len(written), 'ledger')}: {written[0]} to {written[-1]}")


@sandbox.command(short_help="SIGKILL a server or a rack.")
@click.argument("name")
@_place
@options.output
def kill(root: Path, output: str, name: str) -> None:
    """Kill NAME with SIGKILL: a server (bookie4), a rack (/rack2), bookies, autorecovery or a RocketMQ
    cluster (hangzhou).

    \b
    Example:  trueup sandbox kill /rack2
    """
    _asking("kill", name, f"killing {name}")(root, output)


@sandbox.command(short_help="Start a server or a rack.")
@click.argument("name")
@_place
@options.output
def start(root: Path, output: str, name: str) -> None:
    """Start NAME and wait until it responds: a server (bookie4), a rack (/rack2), bookies, autorecovery or a
    RocketMQ cluster (hangzhou).

    \b
    Example:  trueup sandbox start /rack2
    """
    _asking("start", name, f"starting {name}")(root, output)


@sandbox.command(short_help="Stop all servers.")
@_place
@options.output
def down(root: Path, output: str) -> None:
    """Stop all servers. The data remains in DIR.

    \b
    Example:  trueup sandbox down
    """
    _asking("down", "", "shutting down")(root, output)
