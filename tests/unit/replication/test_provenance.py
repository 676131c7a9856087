import pytest

from trueup.connectors.contract import Endpoint
from trueup.connectors.replication.headers import Path
from trueup.state.replication.provenance import (
    SINGLE,
    Tag,
    birth_in,
    bit_of,
    onward,
    path_with,
    producer_id,
    refilled,
    tag_of,
    tokens_bytes,
    tokens_in,
    tokens_of,
)

EAST, WEST, NORTH = 0, 1, 31


def test_a_producer_id_has_the_mark_the_path_and_the_flow():
    assert producer_id(0b101, 0xBEEF) == 0x5455_0000_0005_BEEF


def test_the_largest_tag_is_still_a_positive_long():
    assert producer_id((1 << 32) - 1, 0xFFFF) < 1 << 63


@pytest.mark.parametrize(("path", "writer_id"), [(-1, 0), (1 << 32, 0), (0, 1 << 16), (0, -1)])
def test_what_does_not_fit_is_refused(path: int, writer_id: int):
    with pytest.raises(ValueError, match="expected a path of 32 bits"):
        producer_id(path, writer_id)


NOT_OURS = (0x5454, 0x5456, 0x547F, 0x5500)


@pytest.mark.parametrize("other", [-1, 0, 17, 2**62, 2**63 - 1, -(2**63), *(mark << 48 for mark in NOT_OURS)])
def test_other_producers_have_no_tag(other: int):
    assert tag_of(other) is None


def test_a_tag_is_read_from_its_producer_id():
    assert tag_of(producer_id(1 << NORTH | 1, 9)) == Tag(1 << NORTH | 1, 9, whole=True)


@pytest.mark.parametrize("mark", [SINGLE[0], SINGLE[-1]])
def test_a_tag_says_whether_records_were_copied_one_by_one(mark: int):
    assert tag_of(producer_id(1, 9, mark)) == Tag(1, 9, whole=False)


def test_a_path_has_the_names_that_are_known_and_all_bits():
    assert tokens_in(0b1101, {"east": 0, "west": 2}) == ("east#0", "west#2", "#3")
    assert path_with(("east#0", "west#2", "#3")) == 0b1101


@pytest.mark.parametrize("token", ["gone", "#", "#32", "#x", "#-1", "#\u0661", "east#0x", "#000", ""])
def test_other_tokens_have_no_bit(token: str):
    assert path_with((token,)) == 0


def test_a_number_of_thousands_of_digits_is_no_bit():
    assert bit_of("x#" + "9" * 5_000) is None


@pytest.mark.parametrize(
    ("path", "name"), [(b"east#0,west#1", b"east"), (b"#3,west#1", b"#3"), (b"theirs", b"theirs"), (b"", b"")]
)
def test_a_path_names_the_cluster_of_birth(path: bytes, name: bytes):
    assert birth_in(path) == name


def test_a_record_produced_at_the_source_is_copied_with_the_source_in_its_path():
    assert onward(None, EAST, WEST, False) == 0b1


def test_a_record_that_passed_the_target_does_not_go_there():
    assert onward(1 << WEST, EAST, WEST, True) is None


def test_a_record_from_a_third_cluster_goes_on_only_where_the_link_forwards():
    assert [onward(1 << NORTH, EAST, WEST, forward) for forward in (True, False)] == [1 << NORTH | 1, None]


def test_nothing_goes_from_a_cluster_to_itself():
    assert (onward(None, EAST, EAST, True), moved(b"", "a#0>a#0")) == (None, None)


def test_a_header_holds_tokens():
    assert tokens_of(tokens_bytes(("east#0", "west#1"))) == ("east#0", "west#1")


def test_no_header_and_an_empty_one_are_the_same():
    assert (tokens_of(None), tokens_of(b"")) == ((), ())


def test_bytes_that_are_no_text_are_no_cluster():
    assert tokens_of(b"\xff,east#0") == ("\\xff", "east#0")


def moved(path: bytes, link: str = "north#2>east#0", forward: bool = True, held: bool | None = None) -> bytes | None:
    """The header of a record after this link."""
    ends = (Endpoint(name, "", int(bit)) for name, bit in (end.split("#") for end in link.split(">")))
    return Path(*ends, forward, held).onward(path)


@pytest.mark.parametrize("passed", [b"northeast#5", b"#5", b"east"])
def test_another_bit_is_another_cluster_whatever_its_name(passed: bytes):
    assert moved(passed) == passed + b",north#2"


@pytest.mark.parametrize("passed", [b"east#0", b"#0", b"eu#0"])
def test_the_bit_of_the_target_stops_the_record_whatever_its_name(passed: bytes):
    assert moved(passed + b",west#1") is None


@pytest.mark.parametrize("passed", [b"north#2", b"#2"])
def test_a_refilled_record_does_not_leave_its_source_again(passed: bytes):
    assert moved(passed) is None


def test_without_forward_only_the_records_of_the_source_go():
    assert [moved(path, "b#1>c#2", forward=False) for path in (b"", b"a#0")] == [b"b#1", None]


def test_a_token_is_not_repeated():
    assert moved(b"a#0,b#1,a#0", "c#2>d#3") == b"a#0,b#1,c#2"


def test_a_refilled_record_goes_to_the_target_again_whatever_it_passed():
    assert [refilled(path, WEST, EAST, True, held=True) for path in (None, 0b01, 0b100, 0b101)] == [
        0b11,
        0b11,
        0b111,
        0b111,
    ]


def test_what_the_target_never_had_is_not_written_as_having_passed_it():
    assert refilled(None, 1, 0, True, held=False) == 0b10


def test_in_a_mesh_a_refill_leaves_out_what_other_links_bring():
    assert [refilled(path, 1, 0, False, held=True) for path in (None, 0b01, 0b100)] == [0b11, 0b11, None]


@pytest.mark.parametrize("held", [True, False])
def test_a_refilled_record_does_not_come_back(held: bool):
    for path in (None, 0b01):
        written = refilled(path, 1, 0, True, held)
        assert onward(written, 0, 1, True) is None


def test_a_refilled_record_that_had_left_the_cluster_does_not_leave_it_twice():
    written = refilled(0b01, 1, 0, True, held=True)
    assert onward(written, 0, 2, True) is None


@pytest.mark.parametrize(
    ("path", "held", "after"),
    [
        (b"", True, b"west#1,east#0"),
        (b"east#0", False, b"east#0,west#1"),
        (b"eu#0", True, b"eu#0,west#1"),
        (b"#0,west#1", True, b"#0,west#1"),
    ],
)
def test_tokens_are_refilled_as_bits_are(path: bytes, held: bool, after: bytes):
    assert moved(path, "west#1>east#0", held=held) == after


def test_a_refill_without_forward_leaves_tokens_of_other_clusters_out():
    assert moved(b"north#2", "west#1>east#0", forward=False, held=True) is None
