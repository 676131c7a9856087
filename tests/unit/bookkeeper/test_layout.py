"""Conversion between ledger ids and paths in all four layouts."""

import numpy as np
import pytest

from trueup.connectors.bookkeeper.metadata.layout import (
    BookKeeperPaths,
    LedgerLayout,
    ZnodeKind,
    holds_ledgers,
    is_directory,
    leaves,
    ledger_of,
)
from trueup.state.common.errors import BadBytes, BadSettings

PATHS = BookKeeperPaths("/ledgers")


@pytest.mark.parametrize(
    ("layout", "ledger", "relative"),
    [
        (LedgerLayout.HYBRID, 0, "00/0000/L0000"),
        (LedgerLayout.HYBRID, 2147483646, "21/4748/L3646"),
        (LedgerLayout.HYBRID, 2147483647, "000/0000/0021/4748/L3647"),
        (LedgerLayout.HYBRID, 2**63 - 1, "922/3372/0368/5477/L5807"),
        (LedgerLayout.LONG, 7, "000/0000/0000/0000/L0007"),
        (LedgerLayout.LEGACY, 2147483647, "21/4748/L3647"),
        (LedgerLayout.FLAT, 12, "L0000000012"),
        (LedgerLayout.FLAT, 10**10, "L10000000000"),
        (LedgerLayout.FLAT, 2**63 - 1, "L9223372036854775807"),
    ],
)
def test_ledger_paths(layout: LedgerLayout, ledger: int, relative: str) -> None:
    assert (BookKeeperPaths("/ledgers", layout).relative(ledger), ledger_of(relative)) == (relative, ledger)


@pytest.mark.parametrize("layout", list(LedgerLayout))
def test_many_paths_are_the_same_as_one_by_one(layout: LedgerLayout) -> None:
    paths = BookKeeperPaths("/ledgers", layout)
    ids = np.array([0, 9_999, 10_000, 2147479999, 2147483646, 2147483647, 2147483648, 5_000_000_000])
    assert paths.relatives(ids) == [paths.relative(ledger).encode() for ledger in ids.tolist()]


def test_no_ids_have_no_paths() -> None:
    assert PATHS.relatives(np.zeros(0, np.int64)) == []


@pytest.mark.parametrize(
    ("path", "about"),
    [
        ("00/0000/L0012", (ZnodeKind.LEDGER, 12)),
        ("000/0000/0021/4748/L3647", (ZnodeKind.LEDGER, 2147483647)),
        ("underreplication/ledgers/0000/0000/0001/0002/urL0000065538", (ZnodeKind.MARK, 65538)),
        ("underreplication/locks/urL0000065538", (ZnodeKind.MARK, 65538)),
        ("underreplication/ledgers/0000/0000", (ZnodeKind.OTHER, -1)),
        ("underreplication/disable", (ZnodeKind.OTHER, -1)),
        ("available/10.0.0.1:3181", (ZnodeKind.BOOKIE, -1)),
        ("available/readonly/10.0.0.1:3181", (ZnodeKind.BOOKIE, -1)),
        ("cookies/10.0.0.1:3181", (ZnodeKind.BOOKIE, -1)),
        ("00/0000", (ZnodeKind.OTHER, -1)),
        ("INSTANCEID", (ZnodeKind.OTHER, -1)),
        ("00/0000/L0012/x", (ZnodeKind.OTHER, -1)),
        ("922/3372/0368/5477/L5807", (ZnodeKind.LEDGER, 2**63 - 1)),
        ("922/3372/0368/5477/L5808", (ZnodeKind.INVALID_ID, -1)),
        ("999/9999/9999/9999/L9999", (ZnodeKind.INVALID_ID, -1)),
        ("underreplication/locks/urL9999999999999999999", (ZnodeKind.INVALID_ID, -1)),
        ("\N{ARABIC-INDIC DIGIT ONE}0/0000/L0012", (ZnodeKind.OTHER, -1)),
    ],
)
def test_paths_are_classified(path: str, about: tuple[ZnodeKind, int]) -> None:
    assert PATHS.classify(f"/ledgers/{path}") == about


def test_marks_stand_under_the_words_of_the_id() -> None:
    path = PATHS.mark(0x0001_0002_0003_0004)
    assert path == "/ledgers/underreplication/ledgers/0001/0002/0003/0004/urL281483566841860"


def test_a_mark_and_its_lock_lead_back_to_their_ledger() -> None:
    ledger = 2**40 + 5
    assert {PATHS.classify(PATHS.mark(ledger)), PATHS.classify(PATHS.lock(ledger))} == {(ZnodeKind.MARK, ledger)}


@pytest.mark.parametrize(
    ("directory", "names", "ids"),
    [
        ("21/4748", [b"L3646", b"L0000"], [2147483646, 2147480000]),
        ("000/0000/0021/4748", [b"L3647"], [2147483647]),
        ("", [b"L0000000012", b"L0000000001"], [12, 1]),
        ("00/0000", [b"L0001", b"Lxxxx", b"tmp"], [1, -1, -1]),
        ("00/0000", [], []),
        ("922/3372/0368/5477", [b"L5807", b"L5808"], [2**63 - 1, -1]),
        ("999/9999/9999/9999", [b"L9999", b"L0000"], [-1, -1]),
    ],
)
def test_ids_of_the_names_in_a_directory(directory: str, names: list[bytes], ids: list[int]) -> None:
    assert leaves(directory, names).tolist() == ids


def test_directories_of_ledgers_are_distinguished_from_the_rest() -> None:
    top = [name for name in (b"00", b"000", b"LAYOUT", b"cookies", b"0") if is_directory(name, "")]
    below = [name for name in (b"0000", b"00", b"L0000") if is_directory(name, "00")]
    assert (top, below) == ([b"00", b"000"], [b"0000"])


def test_only_the_lowest_directories_hold_ledgers() -> None:
    levels = ["00", "00/0000", "000", "000/0000", "000/0000/0000", "000/0000/0000/0000"]
    assert [level for level in levels if holds_ledgers(level)] == ["00/0000", "000/0000/0000/0000"]


@pytest.mark.parametrize(
    ("data", "layout"),
    [
        (b"2\norg.apache.bookkeeper.meta.HierarchicalLedgerManagerFactory:1", LedgerLayout.HYBRID),
        (b"2\norg.apache.bookkeeper.meta.LongHierarchicalLedgerManagerFactory:1", LedgerLayout.LONG),
        (b"2\norg.apache.bookkeeper.meta.LegacyHierarchicalLedgerManagerFactory:1", LedgerLayout.LEGACY),
        (b"2\norg.apache.bookkeeper.meta.FlatLedgerManagerFactory:1", LedgerLayout.FLAT),
        (b"1\nflat:1", LedgerLayout.FLAT),
        (b"1\nhierarchical:1", LedgerLayout.HYBRID),
    ],
)
def test_layout_znodes(data: bytes, layout: LedgerLayout) -> None:
    assert LedgerLayout.parse(data, "/ledgers/LAYOUT") is layout


@pytest.mark.parametrize("data", [b"", b"3\nx:1", b"2\norg.apache.bookkeeper.meta.MSLedgerManagerFactory:1", b"2\n"])
def test_other_layouts_are_refused(data: bytes) -> None:
    with pytest.raises(BadBytes):
        LedgerLayout.parse(data, "/ledgers/LAYOUT")


@pytest.mark.parametrize("root", ["ledgers", "/ledgers/", "/"])
def test_a_root_must_be_a_path(root: str) -> None:
    with pytest.raises(BadSettings):
        BookKeeperPaths(root)
