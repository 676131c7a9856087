"""Log directories rendered as bars."""

import xml.etree.ElementTree as Xml

from trueup.sandbox.demo.logdirs import LogDirsResult, screen
from trueup.sandbox.demo.picture import DirectoriesAt, lines, svg
from trueup.state.logdirs.snapshot import Directory

MB = 1 << 20
SMALL = Directory("/disks/small", 0, 100 * MB, 10 * MB, True, True, 4, 90 * MB, 0, 0)
LARGE = Directory("/disks/<large>", 1, 400 * MB, 200 * MB, True, False, 4, 200 * MB, 0, 0)
SHOT = DirectoriesAt("before", (SMALL, LARGE))


def test_a_bar_is_as_full_as_its_disk() -> None:
    assert [line.count("█") for line in lines(SHOT)] == [0, 36, 20]


def test_the_terminal_shows_sizes_and_cordons() -> None:
    assert "90% of 100 MiB, 4 partitions, cordoned" in lines(SHOT)[1]


def test_the_file_has_bars_as_long_as_disks_are_large() -> None:
    root = Xml.fromstring(svg([SHOT, SHOT]))
    bars = [float(box.get("width", "0")) for box in root.iter("{http://www.w3.org/2000/svg}rect") if box.get("x")]
    assert bars == [100.0, 90.0, 400.0, 200.0] * 2


def test_it_is_right_only_when_level_with_nothing_lost_or_left() -> None:
    good = {"skews": [0.5, 0.1], "new": {"large": 6}}
    bad = ({"skews": [0.5, 0.2]}, {"lost": 1}, {"throttle": 9}, {"new": {"small": 1}})
    assert [LogDirsResult(**{**good, **more}).right for more in ({}, *bad)] == [True, *[False] * 4]  # type: ignore[arg-type]


def test_the_last_screen_counts() -> None:
    assert screen(LogDirsResult(skews=[0.57, 0.09], moves=3)).row_count == 8
