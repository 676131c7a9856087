"""Properties of a message (MessageDecoder.java, string2messageProperties): name, 1, value, 2, in UTF-8.

Names can contain neither separator, and values not the second. The last separator may be missing. Bytes that are not
UTF-8 are kept (surrogateescape).
"""

import re
from collections.abc import Iterable, Mapping

from trueup.state.common.errors import Stop

MOST = (1 << 15) - 1
"""Maximum bytes of all properties of a message: their length is an int16."""
MOST_SENT = MOST - 1_024
"""Maximum bytes of the properties of a message in a batch. A broker adds the name of its cluster to them, and 20 bytes
for a checksum (appendPropCRC), and does not check the sum (MessageExtEncoder.java): a length that is negative as an
int16 damages its commit log."""
_VALUE, _NEXT = "\x01", "\x02"


def decoded(raw: bytes | memoryview) -> dict[str, str]:
    """The properties; if a name repeats, the last one. Parts without a separator are ignored, as by RocketMQ."""
    pairs = str(raw, "utf-8", "surrogateescape").split(_NEXT)
    return dict([pair.split(_VALUE, 1) for pair in pairs if _VALUE in pair])


def encoded(properties: Mapping[str, str]) -> bytes:
    """The stored form. Raises `Stop` if a text contains a separator, or all are too long."""
    text = "".join([f"{name}{_VALUE}{value}{_NEXT}" for name, value in properties.items()])
    if text.count(_NEXT) != len(properties) or _VALUE in "".join(properties):
        name = next(n for n, value in properties.items() if _NEXT in n + value or _VALUE in n)
        raise Stop("properties without separators (bytes 1 and 2)", f"one in {name!r}", "encode its value")
    return sized(text.encode("utf-8", "surrogateescape"))


def sized(raw: bytes) -> bytes:
    """These properties, if they are not too long. Raises `Stop`."""
    if len(raw) > MOST:
        raise Stop(f"properties of at most {MOST} bytes", f"{len(raw)} bytes", "shorten or remove properties")
    return raw


def without(names: Iterable[str]) -> re.Pattern[bytes]:
    """A pattern of the stored properties with these names: ``pattern.sub(b"", raw)`` removes them and leaves the others
    byte for byte."""
    words = b"|".join(re.escape(name.encode()) for name in sorted(names))
    return re.compile(rb"(?<![^\x02])(?:" + words + rb")\x01[^\x02]*\x02?")
