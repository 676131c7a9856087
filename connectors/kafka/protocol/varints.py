"""Numbers of up to 64 bits in seven bits a byte (ByteUtils.java). In the records of batches they are signed: zigzag."""

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
    """A signed number of 64 bits as a varint."""
    left = value << 1 ^ value >> 63
    return _ONE[left] if left < len(_ONE) else unsigned(left)


def unsigned(value: int) -> bytes:
    """A number of 64 bits that is not negative as an unsigned varint."""
    out = bytearray()
    while value > 127:
        out.append(value & 127 | 128)
        value >>= 7
    out.append(value)
    return bytes(out)
