"""Messages of RocketMQ as records of another system, for all messages of a response together.

What `columns.Decoder` does for one message after another is done here if all have the usual form (`protocol.block`) and
nothing that other systems cannot have: no flag, no compressed body, and properties of ASCII, each once, that become the
key or a header, or are dropped.
"""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from trueup.connectors.replication.packed import SHORT, Content, Packed
from trueup.connectors.replication.ports import Columns
from trueup.connectors.rocketmq.protocol import flags
from trueup.connectors.rocketmq.protocol.block import SURE, Block, NumericNames, PropertyBlock, PropertyNames
from trueup.connectors.rocketmq.replication.records import names

Array = NDArray[Any]
_DROPPED, _KEYS = PropertyNames(names.STORED_BY_BROKER), PropertyNames({names.KEYS})
_KEY = names.KEYS + names.VALUE
_OTHERS = PropertyNames((names.RESERVED - names.STORED_BY_BROKER - {names.KEYS}) | names.FOREIGN)


def columns_of(block: Block) -> Columns | None:
    """The records for all messages of a block; None if not all have this form. They are `Packed` if all names and
    values are short."""
    if (block.sys & flags.COMPRESSED).any() or block.flags.any():
        return None
    parts = PropertyBlock.of(block)
    titles = parts.titles
    if titles is None or not parts.raw.isascii() or names.TRANSIENT in parts.raw or _OTHERS.has(titles).any():
        return None
    dropped = _DROPPED.has(titles)
    if (titles.length[dropped] > SURE).any():
        return None
    kept = NumericNames(*(column[~dropped] for column in titles))
    first = np.concatenate(([0], np.cumsum(~dropped)))[parts.edges]
    if repeated(kept, first):
        return None
    packed = _packed(block, parts, dropped)
    return _rows(block, parts, dropped, kept, first) if packed is None else packed


def _packed(block: Block, parts: PropertyBlock, dropped: Array) -> Packed | None:
    """The records; None if not all properties are short, or a key is empty."""
    assert parts.titles is not None, "asked only for properties with names"
    keys = np.flatnonzero(_KEYS.has(parts.titles))
    of = np.searchsorted(parts.first, parts.starts[keys], side="right") - 1
    key_at, key_end = np.full((2, len(block)), -1)
    moved = block.more_at[of] - parts.first[of]
    key_at[of] = moved + parts.starts[keys] + len(_KEY)
    key_end[of] = moved + parts.ends[keys] - 1
    removed = dropped.copy()
    removed[keys] = True
    raw, first = parts.without(removed)
    heads = np.frombuffer(b"\0" + raw, np.uint8).copy()  # a name's length is where the separator before it is
    whole, title = parts.lengths[~removed], parts.titles.length[~removed].astype(np.int64)
    starts = np.cumsum(whole) - whole
    values = starts + title + 1
    lengths = title, whole - title - 2
    if (key_at[of] == key_end[of]).any() or max(column.max(initial=0) for column in lengths) >= SHORT:
        return None
    heads[starts], heads[values] = 2 * lengths[0], 2 * lengths[1]
    counts = np.diff(np.concatenate(([0], np.cumsum(~removed)))[parts.edges])
    content = Content(
        block.places.astype(np.int64),
        block.born,
        block.data,
        key_at,
        key_end,
        block.body_at,
        block.body_end,
        heads.tobytes(),
        first[:-1],
        first[1:],
        counts,
        starts,
        values,
    )
    return Packed(content, slice(0, len(block)))


def _rows(block: Block, parts: PropertyBlock, dropped: Array, kept: NumericNames, first: Array) -> Columns | None:
    """The records, one after another; None if a key is empty."""
    words = parts.without(dropped)[0].replace(names.NEXT, names.VALUE).split(names.VALUE)
    values = words[1::2]
    keys = _keys(kept, first, values)
    if keys is None:
        return None
    texts = {name: str(name, "ascii") for name in set(words[:-1:2])}
    pairs = list(zip(map(texts.__getitem__, words[:-1:2]), values, strict=True))
    edges = first.tolist()
    headers = [
        pairs[start:end] if key < 0 else pairs[start:key] + pairs[key + 1 : end]
        for start, key, end in zip(edges, keys, edges[1:], strict=False)
    ]
    return Columns(
        block.offsets, [None if key < 0 else values[key] for key in keys], block.bodies, block.born.tolist(), headers
    )


def _keys(titles: NumericNames, first: Array, values: list[bytes]) -> list[int] | None:
    """The index of the property `KEYS` of each message, -1 if it has none; None if one of them is empty."""
    at = np.flatnonzero(_KEYS.has(titles))
    if not all(map(values.__getitem__, at.tolist())):
        return None
    indices = np.full(len(first) - 1, -1)
    indices[np.searchsorted(first, at, side="right") - 1] = at
    keys: list[int] = indices.tolist()
    return keys


def repeated(titles: NumericNames, first: Array) -> bool:
    """Whether a message may have two properties of the same name."""
    message = np.repeat(np.arange(len(first) - 1), np.diff(first))
    order = np.lexsort((titles.hashes, message))
    same = (np.diff(message[order]) == 0) & (titles.hashes[order][1:] == titles.hashes[order][:-1])
    return bool(same.any())
