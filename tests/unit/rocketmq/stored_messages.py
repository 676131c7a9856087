"""Stored messages as brokers write them (MessageExtEncoder.java)."""

import struct
import zlib
from dataclasses import dataclass

from trueup.connectors.contract import LogId
from trueup.connectors.rocketmq.protocol.flags import BORN_IN_V6, MAGIC_1, MAGIC_2, STORED_IN_V6
from trueup.connectors.rocketmq.replication.records.binding import Binding

HERE = Binding("0" * 32, LogId("orders", 3, "broker-a"))
"""The queue of these messages."""


@dataclass(frozen=True)
class Message:
    body: bytes = b"body"
    properties: bytes = b"a\x011\x02"
    topic: bytes = b"orders"
    queue: int = 3
    offset: int = 7
    flag: int = 5
    sys: int = 0
    born: int = 1_000
    stored: int = 2_000
    deliveries: int = 0
    physical: int = 4_096

    def encoded(self, magic: int = 0, crc: int | None = None) -> bytes:
        magic = magic or (MAGIC_2 if len(self.topic) > 127 else MAGIC_1)
        crc = zlib.crc32(self.body) & 0x7FFFFFFF if crc is None else crc
        born = bytes(16 if self.sys & BORN_IN_V6 else 4) + struct.pack(">i", 10)
        kept = bytes(range(16 if self.sys & STORED_IN_V6 else 4)) + struct.pack(">i", 10_911)
        rest = b"".join(
            (
                struct.pack(">iiii", magic, crc, self.queue, self.flag),
                struct.pack(">qqiq", self.offset, self.physical, self.sys, self.born),
                born,
                struct.pack(">q", self.stored),
                kept,
                struct.pack(">iq", self.deliveries, 0),
                struct.pack(">i", len(self.body)),
                self.body,
                struct.pack(">h" if magic == MAGIC_2 else ">B", len(self.topic)),
                self.topic,
                struct.pack(">h", len(self.properties)),
                self.properties,
            )
        )
        return struct.pack(">i", len(rest) + 4) + rest
