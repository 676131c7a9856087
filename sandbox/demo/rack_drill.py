"""`trueup demo rack-drill`: the disaster drill of BookKeeper's BP-54, with and without Trueup."""

import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from rich.console import Console
from rich.table import Table

from trueup.connectors.embedded.jars import jars
from trueup.sandbox.demo.drill import DrillResult, drill
from trueup.streams.runtime.spark.session import line

LEDGERS, CONTROL_LEDGERS = 120, 40
CONTROL_WAIT_S = 15.0
SETS = ("bookkeeper-4.17.3", "kafka-4.3.1")


def main(control: bool = False, ledgers: int = LEDGERS, control_ledgers: int = CONTROL_LEDGERS) -> int:
    """Run the demo; returns 0 only if nothing was lost with Trueup and something without (with ``control``: if the
    drill without it lost something)."""
    err = Console(stderr=True, highlight=False, soft_wrap=True)
    fetch(err, (*SETS, line().jars))
    results = []
    with tempfile.TemporaryDirectory(prefix="trueup-drill-") as place:
        if not control:
            err.print("[bold]With Trueup[/]")
            results.append(drill(Path(place) / "with", True, ledgers, 0.0, printer(err)))
        err.print("[bold]The same without Trueup[/]")
        wait_s = max([CONTROL_WAIT_S, *(result.between_s for result in results)])
        results.append(drill(Path(place) / "without", False, control_ledgers, wait_s, printer(err)))
    Console(highlight=False).print(screen(results))
    return verdict(results)


def verdict(results: list[DrillResult]) -> int:
    """The exit code: 0 if nothing was lost with Trueup and something without."""
    kept = all(not r.lost and not r.damaged and not r.fenced for r in results if r.name == "with Trueup")
    lost = any(r.lost for r in results if r.name == "without")
    return 0 if kept and lost else 1


def screen(results: list[DrillResult]) -> Table:
    """Both runs, next to each other."""
    table = Table(title="Two rack losses, one after the other", title_justify="left", box=None, pad_edge=False)
    table.add_column("")
    for result in results:
        table.add_column(result.name, justify="right")
    rows: list[tuple[str, Callable[[DrillResult], str]]] = [
        ("closed ledgers", lambda r: str(r.closed)),
        ("  of these with several fragments", lambda r: str(r.fragmented)),
        ("ledgers left open by an idle writer", lambda r: str(r.left_open)),
        ("on one rack alone when rack 2 was back", lambda r: str(r.found_on_one_rack)),
        ("on one rack alone when rack 1 died", lambda r: str(r.still_on_one_rack)),
        ("shown as blocked, never marked", lambda r: str(r.blocked)),
        ("marks written by Trueup", lambda r: str(r.marks)),
        ("repairs confirmed by metadata", lambda r: str(r.repairs)),
        ("time between the two losses", lambda r: seconds(r.between_s)),
        ("time to safe, median", lambda r: seconds(r.safe_median_s)),
        ("time to safe, longest", lambda r: seconds(max(r.time_to_safe_s, default=None))),
        ("open ledgers fenced", lambda r: str(r.fenced)),
        ("entries written to closed ledgers", lambda r: f"{r.entries:,}"),
        ("entries lost", lambda r: f"[bold {'red' if r.lost else 'green'}]{r.lost:,}[/]"),
        ("the drill took", lambda r: seconds(r.took_s)),
    ]
    for title, cell in rows:
        table.add_row(title, *(cell(result) for result in results))
    return table


def seconds(value: float | None) -> str:
    """A time, or a dash if there is none."""
    return "-" if value is None else f"{value:.1f} s"


def printer(err: Console) -> Callable[[str], None]:
    """Prints progress with the seconds since the start."""
    begun = time.monotonic()

    def say(text: str) -> None:
        err.print(f"{time.monotonic() - begun:7.1f} s  {text}")

    return say


def fetch(err: Console, sets: Sequence[str]) -> None:
    """Download the jars of these sets."""
    for name in sets:
        with err.status(f"jars: {name}") as status:
            jars(name, lambda done, total, name=name: status.update(f"jars: {name} {done >> 20} of {total >> 20} MiB"))  # type: ignore[misc]
