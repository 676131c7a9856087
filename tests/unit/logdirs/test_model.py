"""Directory choice for new partitions: the broker's rule, KIP-178's, and which directories stay uncordoned."""

import numpy as np
import pytest

from trueup.state.logdirs.model import Broker, LogDir, Row, opened, rank, replicas, skew, usable_after
from trueup.state.logdirs.plan import Balance, plan, startable
from trueup.state.logdirs.settings import PARTITION, SIZE

GB = 1 << 30


def broker(*dirs: LogDir, rows: tuple[Row, ...] = ()) -> Broker:
    return Broker(1, dirs, replicas(rows))


def sized(path: str, total: int, usable: int, **more: bool) -> LogDir:
    return LogDir(path, total * GB, usable * GB, **more)


THREE = (sized("/a", 100, 50), sized("/b", 200, 90), sized("/c", 300, 60))
ROWS: tuple[Row, ...] = (("t", 0, 0, GB, 0, False), ("t", 1, 1, GB, 0, False), ("t", 2, 1, GB, 0, False))


def test_partition_counts_logs() -> None:
    assert rank(broker(*THREE, rows=ROWS), PARTITION).paths == ("/c", "/a", "/b")


def test_partition_breaks_ties_in_the_order_of_log_dirs() -> None:
    assert rank(broker(*reversed(THREE)), PARTITION).paths == ("/c", "/b", "/a")


def test_partition_counts_a_moving_replica_in_both_directories() -> None:
    moving: Row = ("t", 0, 2, 0, 9, True)
    again: Row = ("t", 1, 2, 0, 9, True)
    assert rank(broker(*THREE, rows=(*ROWS, moving, again)), PARTITION).paths == ("/a", "/b", "/c")


def test_partition_passes_over_cordoned_directories() -> None:
    dirs = (THREE[0], THREE[1], THREE[2]._replace(cordoned=True))
    assert rank(broker(*dirs, rows=ROWS), PARTITION).paths == ("/a", "/b")


def test_all_cordoned_the_first_that_is_online_is_taken() -> None:
    dirs = (LogDir("/a", online=False), *(d._replace(cordoned=True) for d in THREE[1:]))
    assert rank(broker(*dirs), PARTITION).paths == ("/b",)


def test_size_takes_the_most_usable_bytes() -> None:
    assert rank(broker(*THREE, rows=ROWS), SIZE).paths == ("/b", "/c", "/a")


def test_size_counts_what_is_still_to_be_written() -> None:
    rows: tuple[Row, ...] = (("t", 0, 0, 45 * GB, 0, False), ("t", 0, 1, 3 * GB, 9, True))
    assert rank(broker(*THREE, rows=rows), SIZE).paths == ("/c", "/a", "/b")


def test_the_fallback_of_size_is_reported() -> None:
    found = rank(broker(THREE[0], LogDir("/b")), SIZE)
    assert (found.strategy, "does not report" in found.reason) == (PARTITION, True)


def test_an_offline_directory_is_never_chosen() -> None:
    assert rank(broker(THREE[0], LogDir("/b", online=False)), SIZE).paths == ("/a",)


def test_directories_of_one_volume_share_its_free_bytes() -> None:
    one = (sized("/a", 100, 50), LogDir("/b", 100 * GB, 50 * GB - 4096), THREE[2])
    rows: tuple[Row, ...] = (("t", 0, 2, 10 * GB, 0, False), ("t", 0, 0, 0, 9, True))
    assert (usable_after(broker(*one, rows=rows))[:2] // GB).tolist() == [40, 39]


def test_only_the_emptiest_directories_are_open() -> None:
    assert opened(broker(*THREE), (), band=0.02, least=1).paths == ("/b",)


@pytest.mark.parametrize(("was", "is_open"), [((), False), (("/c",), True)])
def test_an_open_directory_stays_open_in_the_wider_band(was: tuple[str, ...], is_open: bool) -> None:
    dirs = (sized("/a", 100, 60), sized("/c", 100, 56))
    assert ("/c" in opened(broker(*dirs), was, band=0.05, least=1).paths) is is_open


def test_so_many_directories_stay_open_whatever_they_hold() -> None:
    assert len(opened(broker(*THREE), (), band=0.0, least=2).paths) == 2


def test_a_cordoned_directory_may_be_opened_again() -> None:
    dirs = (THREE[0], THREE[1]._replace(cordoned=True))
    assert opened(broker(*dirs), (), band=0.0, least=1).paths == ("/b",)


def test_nothing_is_opened_or_closed_without_sizes() -> None:
    assert opened(broker(LogDir("/a"), LogDir("/b")), (), band=0.05, least=1).paths == ()


def test_skew_is_the_distance_of_the_fullest_from_the_emptiest() -> None:
    assert skew(broker(sized("/a", 100, 20), sized("/b", 200, 180))) == pytest.approx(0.7)


def test_no_plan_while_a_directory_is_offline() -> None:
    dirs = (sized("/a", 100, 20), sized("/b", 200, 180), LogDir("/c", online=False))
    assert plan(broker(*dirs, rows=(("t", 0, 0, 30 * GB, 0, False),)), Balance()).moves == ()


def test_excluded_topics_stay_where_they_are() -> None:
    dirs = (sized("/a", 100, 20), sized("/b", 200, 180))
    rows: tuple[Row, ...] = (("t", 0, 0, 30 * GB, 0, False), ("u", 0, 0, 30 * GB, 0, False))
    moves = plan(broker(*dirs, rows=rows), Balance(topics=frozenset({"t"}))).moves
    assert {move.topic for move in moves} == {"u"}


def test_one_move_at_a_time_in_a_directory() -> None:
    dirs = (sized("/a", 100, 20), sized("/b", 200, 180))
    rows: tuple[Row, ...] = tuple(("t", n, 0, 10 * GB, 0, False) for n in range(6))
    one = broker(*dirs, rows=rows)
    assert len(startable(one, plan(one, Balance(at_once=4)).moves, Balance(at_once=4))) == 1


def test_a_move_under_way_counts_as_done() -> None:
    dirs = (sized("/a", 100, 20), sized("/b", 200, 180))
    still: tuple[Row, ...] = (("t", 0, 0, 60 * GB, 0, False), ("t", 0, 1, 0, 9, True))
    assert skew(broker(*dirs, rows=still)) == pytest.approx(0.2)


def test_the_columns_are_those_of_the_rows() -> None:
    columns = replicas(ROWS)
    assert (columns.name(2), np.bincount(columns.home).tolist()) == (("t", 2), [1, 2])


@pytest.mark.parametrize(("used", "home", "targets"), [((373, 354, 971), 2, []), ((373, 540, 800), 1, ["/b"])])
def test_a_replica_does_not_move_to_and_fro_between_equal_disks(
    used: tuple[int, ...], home: int, targets: list[str]
) -> None:
    """The first two disks are equal. While they have nearly equal contents, they count as one volume."""
    totals = zip(("/a", "/c", "/b"), (2000, 2000, 4000), used, strict=True)
    dirs = [sized(path, total, total - taken) for path, total, taken in totals]
    moves = plan(broker(*dirs, rows=(("t", 0, home, 171 * GB, 0, False),)), Balance(target=0.05)).moves
    assert [move.target for move in moves] == targets
