"""Signed numbers of up to 64 bits in the records of batches (ByteUtils.java): zigzag, seven bits a byte."""

_LONG, _SHIFTS = (1 << 64) - 1, 63
_ONE = [bytes([value]) for value in range(128)]


def varint(body: memoryview, at: int) -> tuple[int, int]:
    """The number at a place, and the place behind it. Raises `IndexError`."""
    value = shift = 0
    while True:
        byte = body[at]
        at += 1
        value |= (byte & 127) << shift
        if byte < 128:
            value &= _LONG
            return value >> 1 ^ -(value & 1), at
        shift += 7
        if shift > _SHIFTS:
            raise IndexError("a varint of more than ten bytes")


def zigzag(value: int) -> bytes:
    """A number of 64 bits as a varint."""
    left = value << 1 ^ value >> 63
    if left < len(_ONE):
        return _ONE[left]
    out = bytearray()
    while left > 127:
        out.append(left & 127 | 128)
        left >>= 7
    out.append(left)
    return bytes(out)
