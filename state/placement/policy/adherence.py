"""The answers about an ensemble, and the arithmetic on windows that policies share.

A window is a write quorum: Qw neighbours on the ring of E members. Entry k is written to window k mod E.
"""

from enum import IntEnum

import numpy as np

from trueup.state.bookkeeper.ledgers import Column
from trueup.state.placement.policy.replacement import windows


class Adherence(IntEnum):
    """How an ensemble satisfies a policy, as `EnsemblePlacementPolicy.PlacementPolicyAdherence` of BookKeeper."""

    FAIL = 0
    SOFT = 1
    STRICT = 2


def distinct_windows(size: int, quorum: int) -> tuple[list[int], ...]:
    """Positions of each window; one window if all have the same members."""
    starts = windows(size, quorum)
    return tuple(map(list, starts[:1] if size == quorum else starts))


def alike(codes: Column, counted: Column) -> Column:
    """Pairs of counted members with equal codes: int[n, Qw] and bool[n, Qw] to bool[n, Qw, Qw]."""
    equal: Column = codes[:, :, None] == codes[:, None, :]
    return equal & counted[:, :, None] & counted[:, None, :]


def groups(pairs: Column) -> Column:
    """Sizes of the groups of alike members: bool[n, Qw, Qw] of `alike` to int[n, Qw].

    The size of a group stands at its first member. All other values are 0.
    """
    later = np.tril(pairs, -1).any(axis=2)
    sizes: Column = np.where(later, 0, pairs.sum(axis=2))
    return sizes
