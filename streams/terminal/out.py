"""Output of commands: tables for people, JSON for programs, progress of long operations on stderr."""

import io
import json
import os
import sys
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, nullcontext, redirect_stdout
from contextvars import ContextVar
from functools import partial
from typing import TYPE_CHECKING, NamedTuple, NoReturn

import click

from trueup.state.common.errors import Retry
from trueup.streams.rows import Row
from trueup.streams.runtime.format import cut, since
from trueup.streams.terminal import codes

if TYPE_CHECKING:
    from rich.console import Console

    from trueup.streams.terminal.client import Api, ListResponse

STYLES = {
    "true": "green",
    "drifted": "yellow",
    "blocked": "red",
    "unknown": "magenta",
    "ok": "green",
    "warn": "yellow",
    "fail": "red",
    "writable": "green",
    "readonly": "yellow",
    "pending": "magenta",
    "lost": "red",
    "up": "green",
    "slow": "yellow",
    "down": "red",
    "running": "green",
    "failed": "red",
    "healthy": "green",
    "attention": "yellow",
    "held": "red",
    "blind": "magenta",
    "starting": "magenta",
    "offline": "red",
    "cordoned": "yellow",
    "open": "green",
}
QUIET_S = 2.0
TICK_S = 1.0
REPEAT_S = 10.0
"""Interval between lines of the same progress where there is no terminal."""
ENDLESS = 100_000
FLEXIBLE = 14
LONGEST = 500
"""Maximum length of a cell: longer than the name of any resource."""


class Column(NamedTuple):
    """A column of a table. On a terminal, a column that neither wraps nor clips keeps its full width."""

    title: str
    cell: Callable[[Row], object]
    """The function that returns the cell of a row."""
    number: bool = False
    """Whether the cells are numbers."""
    wraps: bool = False
    """Whether long cells are broken into lines on a terminal."""
    clips: bool = False
    """Whether long cells are cut on a terminal and end with an ellipsis."""


def table(rows: Sequence[Row], columns: Sequence[Column], empty: str, wide: bool = False) -> None:
    """Print rows, or a text if there are none. ``wide``: whether nothing is shortened, whatever the width of the
    terminal."""
    if not rows:
        click.echo(empty)
        return
    from rich.table import Table
    from rich.text import Text

    def _cell(word: str, clips: bool) -> Text:
        return Text(word, STYLES.get(word, ""), no_wrap=clips or None, overflow="ellipsis" if clips else None)

    if wide:
        columns = [column._replace(wraps=False, clips=False) for column in columns]
    cells = [[_text(column.cell(row)) for column in columns] for row in rows]
    grid, least = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="bold"), 0
    for at, column in enumerate(columns):
        whole = max(len(column.title), *(len(row[at]) for row in cells))
        width = min(whole, FLEXIBLE) if column.wraps or column.clips else whole
        grid.add_column(
            column.title,
            justify="right" if column.number else "left",
            # rich narrows only columns that may wrap; cells of a clipped column do not wrap.
            no_wrap=not (column.wraps or column.clips),
            overflow="ellipsis" if column.clips else "fold",
            min_width=width,
        )
        least += width + 2
    for row in cells:
        grid.add_row(*(_cell(word, column.clips) for word, column in zip(row, columns, strict=True)))
    show(grid, least)


def listing(output: str, response: "ListResponse", columns: Sequence[Column], empty: str) -> int:
    """Print a list, whether a limit truncated it, and why it may be incomplete; returns the exit code."""
    shown = len(response.rows)
    whole = {"incomplete": response.incomplete, "shown": shown, "total": response.total, "rows": response.rows}
    empty = "No data is available." if response.incomplete else empty
    formatted(output, whole if response.incomplete else response.rows, response.rows, columns, empty)
    if output in ("json", "yaml"):
        if shown < response.total and not response.incomplete:
            click.echo(json.dumps({"shown": shown, "total": response.total}), err=True)
    elif output == "name":
        if response.incomplete:
            aside(f"This list may be incomplete: {response.incomplete}")
    else:
        if shown < response.total:
            click.echo(f"\n{shown:,} of {response.total:,}; --limit shows more.")
        if response.incomplete:
            click.echo(f"\nThis list may be incomplete: {response.incomplete}")
    return codes.INCOMPLETE if response.incomplete else codes.OK


def formatted(output: str, whole: object, rows: Sequence[Row], columns: Sequence[Column], empty: str) -> None:
    """Print rows in a format of a list. ``whole``: the value that JSON and YAML contain."""
    if output == "name":
        for row in rows:
            click.echo(columns[0].cell(row))
    elif not structured(output, whole):
        table(rows, columns, empty, output == "wide")


def structured(output: str, whole: object) -> bool:
    """Whether the format is JSON or YAML; prints the value in it."""
    if output == "json":
        as_json(whole)
    elif output == "yaml":
        as_yaml(whole)
    return output in ("json", "yaml")


def _text(value: object) -> str:
    if value is None or value == "":
        return "-"
    return f"{value:,}" if isinstance(value, int) and not isinstance(value, bool) else cut(str(value), LONGEST)


def show(renderable: object, least: int = 0) -> None:
    """Print a renderable of rich without trailing blanks: as wide as the terminal and at least ``least``; without a
    terminal as wide as its contents."""
    from rich.console import Console

    console = Console(highlight=False)
    if not console.is_terminal and "COLUMNS" not in os.environ:
        console = Console(highlight=False, width=ENDLESS)
    elif console.width < least:
        console = Console(highlight=False, width=least)
    with console.capture() as capture:
        console.print(renderable)
    for line in capture.get().splitlines():
        click.echo(line.rstrip())


def styled(text: str, style: str = "") -> str:
    """A text in the style of a verdict or level; click removes colours if stdout is not a terminal."""
    colour = STYLES.get(style or text)
    return click.style(text, fg=colour, bold=True) if colour and not os.environ.get("NO_COLOR") else text


def hints() -> bool:
    """Whether hints are printed: only on a terminal."""
    return sys.stdout.isatty()


def note(text: str) -> None:
    """A hint below a table."""
    if hints():
        click.echo(f"\n{text}")


def as_json(value: object) -> None:
    """Print as JSON."""
    click.echo(json.dumps(value, indent=2))


def as_yaml(value: object) -> None:
    """Print as YAML."""
    import yaml

    click.echo(yaml.safe_dump(value, sort_keys=False, allow_unicode=True), nl=False)


def watch(run: Callable[[], object], every_s: float, sleep: Callable[[float], object] = time.sleep) -> NoReturn:
    """Run a command that prints a list, again and again, until an interrupt. A terminal is cleared before each list.
    Otherwise a list is printed without the lines that the last one had, and JSON and YAML whole if they differ. An
    application that does not respond is waited for."""
    terminal, last = sys.stdout.isatty(), list[str]()
    while True:
        printed = io.StringIO()
        try:
            if terminal:
                click.clear()
                run()
            else:
                with redirect_stdout(printed):
                    run()
        except Retry as error:
            aside(f"{error}; waiting")
        else:
            lines = printed.getvalue().splitlines()
            if lines and lines[0][:1] in "[{-" and lines != last:
                click.echo("\n".join(lines))
            else:
                for line in lines:
                    if line not in last:
                        click.echo(line)
            last = lines
        sleep(every_s)


_programs = ContextVar("programs", default=False)


@contextmanager
def reader(program: bool) -> Iterator[None]:
    """Within this context a program reads the output of a command, or a person. For a program, stderr has at most one
    JSON object: progress, asides and warnings of libraries are not shown."""
    token = _programs.set(program)
    try:
        with _unheard() if program else nullcontext():
            yield
    finally:
        _programs.reset(token)


@contextmanager
def _unheard() -> Iterator[None]:
    """A context in which warnings of libraries are not printed on stderr."""
    import logging  # slow, and a person's command may not need it

    before, logging.lastResort = logging.lastResort, logging.NullHandler()
    try:
        yield
    finally:
        logging.lastResort = before


def aside(text: str) -> None:
    """Print on stderr what a person wants to know and what is no error."""
    if not _programs.get():
        click.echo(text, err=True)


@contextmanager
def progress(what: str) -> Iterator[Callable[[str], None]]:
    """Print on stderr what a command does or waits for and since how many seconds, if it takes longer than two: on a
    terminal in one line, else in a line for each change. Call the result to update the text."""
    if _programs.get():
        yield lambda _: None
        return
    last, ended = [what], threading.Event()
    thread = threading.Thread(target=_show_progress, args=(last, ended), daemon=True)
    thread.start()
    try:
        yield partial(last.__setitem__, 0)
    finally:
        ended.set()
        thread.join()


def _show_progress(last: list[str], ended: threading.Event) -> None:
    """Show the text in ``last`` until the event."""
    began = time.monotonic()
    if ended.wait(QUIET_S):
        return
    from rich.console import Console

    console = Console(stderr=True, highlight=False)
    (_show_status if console.is_terminal else _show_lines)(console, last, began, ended)


def _show_status(console: "Console", last: list[str], began: float, ended: threading.Event) -> None:
    with console.status("") as status:
        while True:
            status.update(_with_seconds(last[0], began))
            if ended.wait(TICK_S):
                return


def _show_lines(_console: "Console", last: list[str], began: float, ended: threading.Event) -> None:
    shown, due = "", 0.0
    while True:
        if last[0] != shown or time.monotonic() >= due:
            shown, due = last[0], time.monotonic() + REPEAT_S
            click.echo(_with_seconds(shown, began), err=True)
        if ended.wait(TICK_S):
            return


def _with_seconds(text: str, began: float) -> str:
    return f"{text} ({time.monotonic() - began:.0f} s)"


def ago(api: "Api", field: str) -> Callable[[Row], str]:
    """A cell with the time since a field of a row, by the application's clock."""
    return lambda row: since(api.now_ms, row[field])


def first(row: Row, *fields: str) -> object:
    """The first of these fields that has a value: 0 is one."""
    return next((value for name in fields if (value := row.get(name)) not in (None, "")), "")


def titled(lines: Iterable[tuple[str, str]]) -> None:
    """Print lines that begin with a title."""
    for title, text in lines:
        click.echo(f"{title:11}{text}")


def bullets(title: str, lines: list[str]) -> None:
    """Print a title and a list below it, or nothing if the list is empty."""
    if lines:
        click.echo(f"\n{title}")
        for line in lines:
            click.echo(click.wrap_text(line, 96, initial_indent="  - ", subsequent_indent="    "))
