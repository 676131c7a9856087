"""The operator's code for records: what is loaded, and what it may return."""

from pathlib import Path
from typing import Any

import pytest

from trueup.connectors.replication.transforms import Record, entry_point, returned
from trueup.state.common.errors import BadSettings

RECORD = Record("orders", 0, 5, 1_700_000_000_000, b"key", b"value", (("n", b"5"), ("empty", None)))


@pytest.mark.parametrize(
    ("name", "code", "problem"),
    [
        ("keyless", "{}['REGION']", "KeyError: 'REGION'"),
        ("unparsed", "def shout(:", "SyntaxError"),
        ("fileless", "open('/no/such/file')", "FileNotFoundError"),
        ("functionless", "", "has no attribute 'shout'"),
    ],
)
def test_a_module_that_cannot_be_loaded_is_a_problem_of_the_settings(
    name: str, code: str, problem: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / f"{name}.py").write_text(code)
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(BadSettings, match=f"links.there.transform: {name}:shout: .*{problem}"):
        entry_point(f"{name}:shout", "links.there.transform")


@pytest.mark.parametrize("result", [None, RECORD, RECORD._replace(key=None, value=None, timestamp=-1, headers=())])
def test_a_transform_may_return_any_record_or_none(result: Record | None) -> None:
    assert returned(result) == result


@pytest.mark.parametrize(
    ("wrong", "problem"),
    [
        ({"key": "text"}, "expected bytes or None as key; found str"),
        ({"value": bytearray(b"bytes")}, "expected bytes or None as value; found bytearray"),
        ({"timestamp": 1.5}, "expected an int as timestamp; found float"),
        ({"timestamp": True}, "expected an int as timestamp; found bool"),
        ({"headers": {"n": b"5"}}, r"expected a tuple or list of headers; found dict"),
        ({"headers": ("n",)}, r"expected headers of the form \(name, value\); found str"),
        ({"headers": (("n", b"5", b"6"),)}, r"expected headers of the form \(name, value\); found tuple"),
        ({"headers": ((b"n", b"5"),)}, "expected a str as name of a header; found bytes"),
        ({"headers": (("n", 5),)}, "expected bytes or None as value of header 'n'; found int"),
    ],
)
def test_a_part_of_a_record_that_cannot_be_written_is_named(wrong: dict[str, Any], problem: str) -> None:
    with pytest.raises(TypeError, match=problem):
        returned(RECORD._replace(**wrong))


@pytest.mark.parametrize("timestamp", [1 << 63, -(1 << 63) - 1])
def test_a_timestamp_that_is_not_64_bits_long_is_refused(timestamp: int) -> None:
    with pytest.raises(ValueError, match=f"expected a timestamp of 64 bits; found {timestamp}"):
        returned(RECORD._replace(timestamp=timestamp))


@pytest.mark.parametrize("result", [True, b"value", tuple(RECORD)])
def test_a_result_that_is_no_record_is_refused(result: object) -> None:
    with pytest.raises(TypeError, match="expected a Record or None"):
        returned(result)
