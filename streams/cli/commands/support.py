"""trueup support."""

import io
import json
import tarfile
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict
from pathlib import Path

import click

from trueup.state.common.errors import Stop, TrueupError
from trueup.streams.catalog import STREAMS
from trueup.streams.cli import configuration
from trueup.streams.cli.commands.doctor import examined
from trueup.streams.cli.commands.installation import versions
from trueup.streams.rows import Row
from trueup.streams.runtime.format import size
from trueup.streams.terminal import options, out
from trueup.streams.terminal.client import Api, ApiTarget

ROWS, LOG_BYTES = 1_000, 5 << 20
Read = Callable[[], object]


@click.group(short_help="Collect what a maintainer needs to see.")
def support() -> None:
    """Collect what a maintainer needs to see.

    \b
    Example:  trueup support bundle -c trueup.yaml
    """


@support.command(short_help="Write a file with the state of an application.")
@options.configuration
@click.option("--to", metavar="FILE", type=click.Path(path_type=Path), help="The file to write (.tar.gz).")
@click.option("--log", metavar="FILE", type=click.Path(path_type=Path), help="Add the last 5 MiB of this log.")
@options.output
@options.api
def bundle(
    api: ApiTarget, output: str, path: Path | None, pairs: tuple[str, ...], to: Path | None, log: Path | None
) -> None:
    """Write a file with the state of an application: versions, status, settings, lists, history, metrics, and with -c
    the results of `trueup doctor`.

    Names of hosts, topics and ledgers are in it. Secrets are not: the API does not show them, and the configuration
    file is not added. Parts that cannot be read are listed with the reason in errors.json.

    \b
    Example:  trueup support bundle -c trueup.yaml --log /var/log/trueup.log
    """
    name = time.strftime("trueup-support-%Y%m%d-%H%M%S", time.gmtime())
    place = to or Path(f"{name}.tar.gz")
    app, errors = Api(api), dict[str, str]()
    parts = [*_parts(app)]
    if path is not None or pairs:
        parts.append(("doctor.json", lambda: _doctor(path, pairs)))
    if log is not None:
        parts.append(("trueup.log", lambda: _tail(log)))
    with out.progress("collecting") as better, _created(place) as file, tarfile.open(fileobj=file, mode="w:gz") as tar:
        for part, read in parts:
            better(f"collecting {part}")
            try:
                _add(tar, f"{name}/{part}", read())
            except (TrueupError, OSError) as error:
                errors[part] = str(error)
        _add(tar, f"{name}/errors.json", errors)
    if output == "json":
        out.as_json({"file": str(place), "bytes": place.stat().st_size, "errors": errors})
        return
    click.echo(f"{place}, {size(place.stat().st_size)}")
    out.bullets("Not in it:", [f"{part}: {why}" for part, why in errors.items()])


def _parts(app: Api) -> Iterator[tuple[str, Read]]:
    """The name of each file, and what returns its content."""
    yield "versions.json", versions
    for name in ("status", "config", "plan"):
        yield f"{name}.json", lambda name=name: app.get(name)  # type: ignore[misc]
    yield "actions.json", lambda: app.get("actions", limit=ROWS)
    for stream in STREAMS:
        yield f"findings-{stream.name}.json", lambda s=stream.name: app.get("findings", stream=s, limit=ROWS)  # type: ignore[misc]
        for noun in stream.lists:
            limit = ROWS if noun.limit else None
            yield f"{noun.name}.json", lambda n=noun.name, most=limit: app.get(n, limit=most)  # type: ignore[misc]
    yield "metrics.txt", app.metrics


def _doctor(path: Path | None, pairs: tuple[str, ...]) -> list[Row]:
    return [asdict(check) for check in examined(configuration.settings(path, pairs), lambda _: None, skip_spark=True)]


def _tail(log: Path) -> str:
    with log.open("rb") as file:
        file.seek(max(0, file.seek(0, io.SEEK_END) - LOG_BYTES))
        return file.read().decode(errors="replace")


def _created(place: Path) -> io.BufferedWriter:
    """A new file that only its owner can read. Raises `Stop`."""
    try:
        place.touch(mode=0o600, exist_ok=False)
        return place.open("wb")
    except OSError as error:
        raise Stop(f"a new file {place}", str(error.strerror), "name another file with --to") from error


def _add(tar: tarfile.TarFile, name: str, content: object) -> None:
    raw = (content if isinstance(content, str) else json.dumps(content, indent=1)).encode()
    info = tarfile.TarInfo(name)
    info.size, info.mtime, info.mode = len(raw), int(time.time()), 0o600
    tar.addfile(info, io.BytesIO(raw))
