"""Log directories before and after as bars, for the terminal and as an SVG file."""

from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple
from xml.sax.saxutils import escape

from trueup.state.common.counts import many
from trueup.state.logdirs.snapshot import Directory
from trueup.streams.runtime.format import size

BAR = 40
WIDTH, LINE, LEFT, RIGHT = 640, 26, 90, 150
COLOURS = ((0.8, "#c0392b"), (0.6, "#d68910"), (0.0, "#2e86c1"))


class DirectoriesAt(NamedTuple):
    """Directories at one point in time."""

    title: str
    directories: tuple[Directory, ...]


def lines(shot: DirectoriesAt) -> list[str]:
    """For the terminal."""
    return [shot.title, *(f"  {name(d):8}{_bar(d)} {_text(d)}" for d in shot.directories)]


def svg(shots: Sequence[DirectoriesAt]) -> str:
    """All pictures, one below the other; the length of a bar is proportional to the size of its disk."""
    most = max(d.total for shot in shots for d in shot.directories)
    parts, y = [], 10
    for shot in shots:
        y += LINE
        parts.append(f'<text x="10" y="{y}" font-weight="bold">{escape(shot.title)}</text>')
        for d in shot.directories:
            y += LINE
            parts += _drawn(d, y, (WIDTH - LEFT - RIGHT) / most)
        y += LINE // 2
    head = f'<svg xmlns="http://www.w3.org/2000/svg" width="{WIDTH}" height="{y + 10}" font-family="sans-serif" '
    return head + 'font-size="13">\n<rect width="100%" height="100%" fill="white"/>\n' + "\n".join(parts) + "\n</svg>\n"


def name(d: Directory) -> str:
    """The last part of its path."""
    return Path(d.path).name


def _share(d: Directory) -> float:
    return (d.total - d.usable) / d.total


def _partitions(d: Directory) -> str:
    return many(d.partitions, "partition")


def _text(d: Directory) -> str:
    return f"{_share(d):4.0%} of {size(d.total)}, {_partitions(d)}" + (", cordoned" if d.cordoned else "")


def _bar(d: Directory) -> str:
    full = round(_share(d) * BAR)
    return "█" * full + "░" * (BAR - full)


def _drawn(d: Directory, y: int, scale: float) -> list[str]:
    colour = next(shade for least, shade in COLOURS if _share(d) >= least)
    box = f'y="{y - 14}" height="18"'
    return [
        f'<text x="10" y="{y}">{escape(name(d))}</text>',
        f'<rect x="{LEFT}" {box} width="{d.total * scale:.1f}" fill="#eee" stroke="#999"/>',
        f'<rect x="{LEFT}" {box} width="{(d.total - d.usable) * scale:.1f}" fill="{colour}"/>',
        f'<text x="{LEFT + d.total * scale + 6:.1f}" y="{y}">{_share(d):.0%}, {_partitions(d)}</text>',
    ]
