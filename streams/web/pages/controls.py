"""What an operator can change on the pages, and what the pages say before it."""

from collections.abc import Mapping, Sequence
from string import Formatter
from typing import NamedTuple

from trueup.state.common.counts import many
from trueup.state.settings.roles import Role
from trueup.streams.catalog import STREAMS
from trueup.streams.rows import Row
from trueup.streams.runtime.descriptor import Descriptor
from trueup.streams.runtime.stream import AWAITING
from trueup.streams.web.roles import of_key

MODES = {
    "observe": "Trueup then only reports findings, and changes nothing",
    "approve": "Each change then waits for an approval",
    "enforce": "Changes are then made without an approval",
}
CERTAIN = 3
"""An approval of more actions names only these and the number of the others."""


class Button(NamedTuple):
    """A request that an operator can send."""

    label: str
    method: str
    path: str
    body: Row
    says: str
    """A text that says what the request will do."""
    role: Role
    pressed: bool = False
    """Whether the present state is the one that the request sets."""


class Control(NamedTuple):
    """The buttons of one stream, link or cluster."""

    name: str
    mode: str
    """The present mode; empty if the stream, link or cluster has no mode."""
    paused: bool
    buttons: Sequence[Button]


def controls(stream: Descriptor, live: Mapping[str, Row], held: str) -> list[Control]:
    """The controls of a stream. ``live``: the live keys in `Engine.config`; ``held``: the reason why the repairs of the
    stream are held, or empty."""
    owners = dict.fromkeys(key.rpartition(".")[0] for key in stream.keys(live, "mode", "paused"))
    return [_control(owner, live, held) for owner in owners]


def _control(owner: str, live: Mapping[str, Row], held: str) -> Control:
    mode, paused = (live.get(f"{owner}.{leaf}") for leaf in ("mode", "paused"))
    buttons = [_mode(owner, choice, mode["value"]) for choice in MODES] if mode else []
    if paused:
        does = "continue" if paused["value"] else "pause"
        says = (
            f"Set {owner}.paused to {str(not paused['value']).lower()}. {paused['doc']}"
            if does == "pause"
            else (f"Set {owner}.paused to false. {owner} goes on in mode {mode['value'] if mode else 'enforce'}")
        )
        buttons.append(_setting(does.capitalize(), f"{owner}.paused", not paused["value"], says))
    if held and (release := live.get(f"{owner}.release_hold")):
        says = f"Release the hold: {held}. The held ledgers are then repaired, in mode {mode['value'] if mode else ''}"
        buttons.append(_setting("Release the hold", f"{owner}.release_hold", release["value"] + 1, says))
    return Control(owner, mode["value"] if mode else "", bool(paused and paused["value"]), buttons)


def _mode(owner: str, mode: str, present: str) -> Button:
    says = f"Set {owner}.mode from {present} to {mode}. {MODES[mode]}"
    return _setting(mode, f"{owner}.mode", mode, says, mode == present)


def _setting(label: str, key: str, value: object, says: str, pressed: bool = False) -> Button:
    says = f"{says.rstrip('.')}. The value is written to the config topic, and stays after a restart."
    return Button(label, "PUT", f"/api/config/{key}", {"value": value}, says, of_key(key), pressed)


def approval(rows: Sequence[Row]) -> Button | None:
    """The approval of those of these actions that wait for one; None if none does."""
    waits = [row for row in rows if row["stage"] == AWAITING]
    if not waits:
        return None
    label = "Approve" if len(waits) == 1 else f"Approve these {len(waits):,}"
    ids = {"ids": [row["id"] for row in waits]}
    return Button(label, "POST", "/api/approve", ids, _says(waits), Role.APPROVER)


def _says(waits: Sequence[Row]) -> str:
    lines = [does(row) for row in waits[:CERTAIN]]
    more = many(len(waits) - CERTAIN, "other action is also", "other actions are also")
    return " ".join(lines) + (f" {more} approved." if len(waits) > CERTAIN else "")


def does(row: Row) -> str:
    """What an action of the plan changes, as a sentence."""
    for stream in STREAMS:
        if form := stream.kinds.get(row["kind"]):
            values = {name: row.get(name, "") for _, name, _, _ in Formatter().parse(form) if name}
            return f"Trueup {form.format(**values).rstrip('.')}."
    return f"Trueup executes {row['kind']} {row['id']}: {row['reason']}."
