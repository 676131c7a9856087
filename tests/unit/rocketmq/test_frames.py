import base64
import hashlib
import hmac
import json
import struct

import pytest

from trueup.connectors.rocketmq.protocol.frames import Credentials, encoded, parsed, split
from trueup.state.common.errors import BadBytes


def fields_of(raw: bytes) -> dict[str, str]:
    size = struct.unpack_from(">i", raw, 4)[0]
    found: dict[str, str] = json.loads(raw[8 : 8 + size])["extFields"]
    return found


def answer(header: object, kind: int = 0, size: int | None = None) -> memoryview:
    raw = json.dumps(header).encode()
    return memoryview(struct.pack(">I", kind << 24 | (len(raw) if size is None else size)) + raw + b"body")


def test_values_are_texts_and_none_is_left_out() -> None:
    found = fields_of(encoded(11, 1, {"a": 1, "b": True, "c": None, "d": "ü"}))
    assert found == {"a": "1", "b": "true", "d": "ü"}


def test_a_signature_covers_the_values_in_the_order_of_their_names_and_the_body() -> None:
    raw = encoded(310, 1, {"b": "2", "Z": 1}, b"\x00\xff", Credentials("me", "secret", "t"))
    content = b"me" + b"t" + b"1" + b"2" + b"\x00\xff"
    expected = base64.b64encode(hmac.new(b"secret", content, hashlib.sha1).digest()).decode()
    assert fields_of(raw) == {"b": "2", "Z": "1", "AccessKey": "me", "SecurityToken": "t", "Signature": expected}


def test_credentials_are_not_shown() -> None:
    assert "secret" not in repr(Credentials("me", "secret", "secret"))


def test_a_response_has_its_header_and_body() -> None:
    header, body = split(answer({"code": 0, "opaque": 5, "flag": 1, "extFields": {"a": "1"}}), "here")
    assert (header.code, header.opaque, header.response, dict(header.fields), bytes(body)) == (
        0,
        5,
        True,
        {"a": "1"},
        b"body",
    )


@pytest.mark.parametrize(
    "header",
    [
        [],
        {},
        {"code": "0", "opaque": 1, "flag": 1},
        {"code": 0, "opaque": 1, "flag": 1, "extFields": {"a": 1}},
        {"code": 0, "opaque": 1, "flag": 1, "remark": 5},
        {"code": 0, "opaque": 1, "flag": 1, "extFields": [1]},
    ],
)
def test_another_header_is_refused(header: object) -> None:
    with pytest.raises(BadBytes):
        split(answer(header), "here")


@pytest.mark.parametrize("frame", [answer({}, kind=1), answer({}, size=7), memoryview(b"\0\0\0")])
def test_a_header_of_another_form_or_size_is_refused(frame: memoryview) -> None:
    with pytest.raises(BadBytes):
        split(frame, "here")


@pytest.mark.parametrize(
    ("text", "value"),
    [
        (b'{0:"ip", -1 : {2:3}}', {"0": "ip", "-1": {"2": 3}}),
        (b'{"a,5:":"{7:","b":[1,2],\n3:"\\",4:"}', {"a,5:": "{7:", "b": [1, 2], "3": '",4:'}),
    ],
)
def test_numbers_as_keys_are_read_and_texts_stay_as_they_are(text: bytes, value: object) -> None:
    assert parsed(text, "here") == value


@pytest.mark.parametrize("text", [b"", b"{", b"\xff", b"[" * 100_000, b'{0:"' + b'\\"' * 1_000_000, b'{"a\\'])
def test_what_is_not_json_is_refused(text: bytes) -> None:
    with pytest.raises(BadBytes):
        parsed(text, "here")
