"""Adherence to regions.

`RegionAwareEnsemblePlacementPolicy.isEnsembleAdheringToPlacementPolicy` of BookKeeper 4.17.3 is a constant. The rule
here is what its `newEnsemble` guarantees: a ring FAILs if it breaks a condition that every new ensemble satisfies
under the same settings and bookies.

Each condition has a bound of validity, because `newEnsemble` itself forms ensembles outside of it:

- It is strict about bookies of a listed region (reppRegionsToWrite) with two or more racks: it rather forms no
  ensemble. With one rack `RackawareEnsemblePlacementPolicyImpl.newEnsembleInternal` takes any bookie (TruePredicate),
  and in a region that is not listed it ignores the conditions if no bookie satisfies them.
- Durability (`RRTopologyAwareCoverageEnsemble.RackOrRegionDurabilityCoverageSet`) is stated in terms of Qa, not of
  regions per window: no reppMinimumRegionsForDurability - 1 regions hold Qa members of a window. Therefore every Qa
  acknowledged copies lie in at least that number of regions.
- Without durability the windows span min(Qw, minNumRacksPerWriteQuorum) regions instead (`RackQuorumCoverageSet`).
- Racks are guaranteed per region, and only if E = Qw: the members of a region span min(their number,
  minNumRacksPerWriteQuorum) racks. If E > Qw, this is so only if a single region has writable bookies, and then for
  each window. Otherwise it depends on the order in which the regions were filled.
- Bookies of regions that are not listed are used like others. This is never a failure.

Racks are those of now, which may differ from those at the time when the ensemble was formed.
"""

from dataclasses import dataclass
from enum import IntFlag
from functools import cached_property
from typing import Final

import numpy as np

from trueup.state.bookkeeper.ledgers import Column
from trueup.state.placement.policy.adherence import Adherence, alike, distinct_windows, groups

REPAIRS_PLACEMENT: Final = False
"""Whether workers move replicas of live members. `replaceToAdherePlacementPolicy` returns its input.

A worker never sees a failing fragment, so it removes the mark of such a ledger without a change.

Lost members are replaced by `replaceBookie`: by a bookie of the same rack, or else of the same region, whatever the
conditions; or else by one of any region. Only the last choice respects durability, and only if
reppEnableDurabilityEnforcementInReplace is set and the other members are durable. Its windows are those of the ring
without the lost member, and racks of members that are not writable count as regions, so that the result can still
break durability.
"""
DEFAULT_PLACE: Final = ("UnknownRegion", "/default-region/default-rack")
"""The place of bookies without a location."""


class RegionCondition(IntFlag):
    """Conditions that `newEnsemble` satisfies, each within its bound."""

    QUORUMS = 1
    """reppMinimumRegionsForDurability <= Qa <= Qw, and Qa > Qw - Qw // reppMinimumRegionsForDurability."""
    DEFAULT = 2
    """With enforceMinNumRacksPerWriteQuorum no member is in the default rack."""
    REGIONS = 4
    """The ring spans reppMinimumRegionsForDurability regions."""
    COVERED = 8
    """Every listed region has a member."""
    DURABLE = 16
    """No reppMinimumRegionsForDurability - 1 regions hold Qa members of a window."""
    SPREAD = 32
    """Without durability: every window spans min(Qw, minNumRacksPerWriteQuorum) regions."""
    RACKS = 64
    """E = Qw: the members of each region span min(their number, minNumRacksPerWriteQuorum) racks.
    E > Qw: every window spans min(Qw, minNumRacksPerWriteQuorum) racks."""
    LISTED = 128
    """Every member is in a listed region. Never guaranteed."""


@dataclass(frozen=True, slots=True)
class RegionRules:
    """Settings of the clients that form ensembles."""

    listed: tuple[int, ...] = ()
    """Codes of the regions in reppRegionsToWrite."""
    min_regions: int = 2
    """reppMinimumRegionsForDurability. It is without effect if no region is listed. 1 while the feature
    reppDisableDurabilityEnforcementFeature is available."""
    min_racks: int = 2
    """minNumRacksPerWriteQuorum."""
    enforce_min_racks: bool = False
    """enforceMinNumRacksPerWriteQuorum."""
    validated: bool = True
    """reppEnableValidation."""
    default: int = -1
    """Code of the region of `DEFAULT_PLACE`."""

    @property
    def durable_regions(self) -> int:
        """The number of regions in force for durability. 0: there is no durability."""
        return self.min_regions if self.listed else 0


def region_place(location: str) -> tuple[str, str] | None:
    """Region and rack of a location, "/region/rack". None if the policy has no place for it.

    For a location of another depth than that of the first bookie `onClusterChanged` throws, and the bookies after
    this one are lost to the policy.
    """
    location = location.removesuffix("/")
    parts = location.split("/")
    if len(parts) != 3 or parts[0] or not all(parts[1:]):
        return None
    return DEFAULT_PLACE if location == DEFAULT_PLACE[1] else (parts[1], location)


def region_adherence(
    regions: Column, racks: Column, live: Column, quorum: int, acks: Column | int, rules: RegionRules, stock: Column
) -> Column:
    """`Adherence` of ``n`` rings: uint8[n]. Arguments as in `broken_guarantees`.

    FAIL: a guaranteed condition is broken. SOFT: only conditions are broken that BookKeeper does not guarantee for
    such a ring. STRICT: no condition is broken.
    """
    failed, tolerated = broken_guarantees(regions, racks, live, quorum, acks, rules, stock)
    answers: Column = np.select([failed > 0, tolerated > 0], [Adherence.FAIL, Adherence.SOFT], Adherence.STRICT)
    return answers.astype(np.uint8)


def broken_guarantees(
    regions: Column, racks: Column, live: Column, quorum: int, acks: Column | int, rules: RegionRules, stock: Column
) -> tuple[Column, Column]:
    """Conditions that ``n`` rings of E members break: those that are guaranteed, and the others.

    Both are sets of `RegionCondition`, uint8[n]. ``regions`` and ``racks``: codes, int[n, E], -1 if not known; racks of
    different regions are never compared. ``live``: whether the member is writable at a known place, bool[n, E]. A
    member that is not live is in no region, and possibly among the Qa members that acknowledged an entry. ``quorum``:
    Qw. ``acks``: Qa, of all rings or int[n]. ``stock``: the number of racks with writable bookies, by region code; 0
    for a region that a feature (reppDisallowBookiePlacementInRegionFeatureName) excludes.
    """
    rings = _RegionRings(regions, racks, live, quorum, np.broadcast_to(acks, len(regions)), rules, stock)
    failed, tolerated = np.zeros(len(regions), np.uint8), np.zeros(len(regions), np.uint8)
    for condition, (broken, guaranteed) in rings.conditions().items():
        failed[broken & guaranteed] |= np.uint8(condition)
        tolerated[broken & ~guaranteed] |= np.uint8(condition)
    return failed, tolerated


@dataclass(frozen=True, eq=False)
class _RegionRings:
    """Rings and what they are held against. Names as in `broken_guarantees`."""

    regions: Column
    racks: Column
    live: Column
    quorum: int
    acks: Column
    rules: RegionRules
    stock: Column

    @cached_property
    def size(self) -> int:
        return int(self.regions.shape[1])

    @cached_property
    def several_racks(self) -> Column:
        """Members in a region with two or more racks: bool[n, E]."""
        several: Column = self.stock[self.regions] > 1
        return self.live & several

    @cached_property
    def listed(self) -> Column:
        """Members in a listed region: bool[n, E]."""
        return self.live & np.isin(self.regions, self.rules.listed)

    @cached_property
    def strict(self) -> Column:
        """Members for which `newEnsemble` respects all conditions: bool[n, E]."""
        return self.listed & self.several_racks

    @cached_property
    def available(self) -> int:
        """The number of regions with writable bookies."""
        return int(np.count_nonzero(self.stock))

    def conditions(self) -> dict[RegionCondition, tuple[Column, Column]]:
        """Of each condition: whether it is broken, and whether it is guaranteed if so; both bool[n]."""
        every, none = np.ones(len(self.regions), bool), np.zeros(len(self.regions), bool)
        validated = every if self.rules.validated and self.available > 1 else none
        return {
            RegionCondition.QUORUMS: (self._quorums(), every),
            RegionCondition.DEFAULT: (self._default(), every),
            RegionCondition.REGIONS: (self._few_regions(), validated),
            RegionCondition.COVERED: self._uncovered(),
            RegionCondition.DURABLE: self._not_durable(),
            RegionCondition.SPREAD: self._not_spread(),
            RegionCondition.RACKS: self._racks_of_regions() if self.size == self.quorum else self._racks_of_windows(),
            RegionCondition.LISTED: (self._not_listed(), none),
        }

    def _quorums(self) -> Column:
        least = self.rules.durable_regions
        broken: Column = (self.acks < least) | (self.acks > self.quorum)
        return broken | (self.acks <= self.quorum - self.quorum // least) if least else broken

    def _default(self) -> Column:
        refused = self.live & (self.regions == self.rules.default) & self.rules.enforce_min_racks
        broken: Column = refused.any(axis=1)
        return broken

    def _few_regions(self) -> Column:
        few: Column = np.count_nonzero(groups(alike(self.regions, self.live)), axis=1) < self.rules.durable_regions
        return few

    def _not_listed(self) -> Column:
        others: Column = np.count_nonzero(self.live & ~self.listed, axis=1) > 0
        return others if self.rules.listed else np.zeros_like(others)

    def _uncovered(self) -> tuple[Column, Column]:
        """Listed regions without a member.

        Each region with writable bookies receives a member if there are members enough. Its first bookie can be
        refused only where three or more regions are required.
        """
        broken, guaranteed = np.zeros(len(self.regions), bool), np.zeros(len(self.regions), bool)
        needed = self.rules.durable_regions or min(self.quorum, self.rules.min_racks)
        enough = self.size >= self.available and needed <= 2
        for region in self.rules.listed:
            missing = ~(self.live & (self.regions == region)).any(axis=1)
            broken |= missing
            guaranteed |= missing & (enough and self.stock[region] > 0)
        return broken, guaranteed

    def _not_durable(self) -> tuple[Column, Column]:
        """Guaranteed if the regions of strict members alone break it."""
        broken, guaranteed = np.zeros(len(self.regions), bool), np.zeros(len(self.regions), bool)
        if self.rules.durable_regions < 2:
            return broken, guaranteed
        for window in distinct_windows(self.size, self.quorum):
            absent = np.count_nonzero(~self.live[:, window], axis=1)
            broken |= self._largest(window, self.live) + absent >= self.acks
            guaranteed |= self._largest(window, self.strict) + absent >= self.acks
        return broken, guaranteed

    def _largest(self, window: list[int], counted: Column) -> Column:
        """The most counted members of a window in `durable_regions` - 1 regions: int[n]."""
        sizes = np.sort(groups(alike(self.regions[:, window], counted[:, window])), axis=1)
        largest: Column = sizes[:, max(0, len(window) + 1 - self.rules.durable_regions) :].sum(axis=1)
        return largest

    def _not_spread(self) -> tuple[Column, Column]:
        """Guaranteed if all live members of the window are strict. Where racks are enforced, the first bookie of each
        region in a ring may break it, so that only a window in one region is excluded, if it has several racks."""
        broken, guaranteed = np.zeros(len(self.regions), bool), np.zeros(len(self.regions), bool)
        need = min(self.quorum, self.rules.min_racks)
        if self.rules.durable_regions or need < 2:
            return broken, guaranteed
        for window in distinct_windows(self.size, self.quorum):
            spread = np.count_nonzero(groups(alike(self.regions[:, window], self.live[:, window])), axis=1)
            absent = ~self.live[:, window]
            strict = (self.strict[:, window] | absent).all(axis=1)
            together = (spread < 2) & (self.several_racks[:, window] | absent).all(axis=1)
            broken |= spread < need
            guaranteed |= (spread < need) & (strict & bool(self.rules.listed) | together & self.rules.enforce_min_racks)
        return broken, guaranteed

    def _racks_of_regions(self) -> tuple[Column, Column]:
        """E = Qw: guaranteed for strict members, and for all where racks are enforced."""
        region = alike(self.regions, self.live)
        rack = groups(region & alike(self.racks, self.live)) > 0
        spread = (region & rack[:, None, :]).sum(axis=2)
        short = self.live & (spread < np.minimum(region.sum(axis=2), self.rules.min_racks))
        return short.any(axis=1), (short & (self.strict | self.rules.enforce_min_racks)).any(axis=1)

    def _racks_of_windows(self) -> tuple[Column, Column]:
        """E > Qw: guaranteed where a single region has writable bookies, and they are strict or racks are enforced."""
        broken = np.zeros(len(self.regions), bool)
        need = min(self.quorum, self.rules.min_racks)
        for window in distinct_windows(self.size, self.quorum):
            live = self.live[:, window]
            rack = alike(self.regions[:, window], live) & alike(self.racks[:, window], live)
            broken |= np.count_nonzero(groups(rack), axis=1) < need
        respected = self.strict | ~self.live | self.rules.enforce_min_racks
        return broken, np.all(respected & (self.available == 1), axis=1)
