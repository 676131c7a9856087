"""Mutations of bytes from a seed, the same in every run. TRUEUP_FUZZ is the number, TRUEUP_FUZZ_SEED the seed."""

import os
import random
from collections.abc import Iterator, Sequence

COUNT = int(os.environ.get("TRUEUP_FUZZ", "0"))
SEED = int(os.environ.get("TRUEUP_FUZZ_SEED", "0"))
_NUMBERS = [
    number.to_bytes(size, "big", signed=True)
    for size in (1, 2, 4, 8)
    for number in (0, -1, 1, -(1 << (8 * size - 1)), (1 << (8 * size - 1)) - 1)
]
_VARINTS = [
    b"\xff" * 9 + b"\x01",
    b"\xff" * 4 + b"\x0f",
    b"\x80" * 9 + b"\x01",
    b"\xfe\xff\xff\xff\x0f",
    b"\x80\x80\x80\x80\x40",
]


def mutated(seeds: Sequence[bytes], count: int, salt: str) -> Iterator[bytes]:
    """``count`` (or TRUEUP_FUZZ) mutations: bits, numbers and pieces are replaced, cut, doubled or joined."""
    rng = random.Random(f"{salt} {SEED}")
    for _ in range(COUNT or count):
        body = bytearray(rng.choice(seeds))
        for _ in range(rng.choice((1, 1, 1, 2, 3, 8))):
            _mutate(rng, body, seeds)
        yield bytes(body)


def _mutate(rng: random.Random, body: bytearray, seeds: Sequence[bytes]) -> None:
    at = rng.randrange(len(body) + 1)
    kind = rng.randrange(8)
    if kind == 0 and body:
        body[at % len(body)] ^= 1 << rng.randrange(8)
    elif kind == 1 and body:
        body[at % len(body)] = rng.randrange(256)
    elif kind == 2:
        number = rng.choice(_NUMBERS)
        body[at : at + len(number)] = number
    elif kind == 3:
        body[at : at + rng.choice((0, 1, 4))] = rng.choice(_VARINTS)
    elif kind == 4:
        del body[at:]
    elif kind == 5:
        del body[at : at + rng.randrange(1, 9)]
    elif kind == 6:
        body[at:at] = body[at : at + rng.randrange(1, 64)] * rng.choice((1, 2, 50))
    else:
        other = rng.choice(seeds)
        begin = rng.randrange(len(other) + 1)
        body[at:] = other[begin:]
