"""Bits of a message's system flag (MessageSysFlag.java), and its magic numbers (MessageDecoder.java)."""

COMPRESSED = 0x1
TRANSACTION = 0xC
PREPARED, COMMITTED = 0x4, 0x8
BORN_IN_V6, STORED_IN_V6 = 0x10, 0x20
INNER_BATCH = 0xC0
"""Of a message that contains several, in topics with queue.type BatchCQ."""
COMPRESSION_SHIFT, COMPRESSION = 8, 0x7 << 8
KEPT = COMPRESSED | COMPRESSION
"""The bits that describe a body, and are sent again with it. The others describe how it was stored."""
MAGIC_1, MAGIC_2 = -626843481, -626843477
"""The second: topics of more than 127 bytes, with a length of two bytes."""
