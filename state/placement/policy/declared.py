"""The placement policy that the settings declare."""

from trueup.state.bookkeeper.topology import PlacementPolicy
from trueup.state.common.counts import many
from trueup.state.placement.settings import PlacementSettings


def declared(settings: PlacementSettings) -> PlacementPolicy:
    """The policy as part of a topology."""
    return PlacementPolicy(
        kind=settings.policy,
        regions=tuple(settings.regions),
        min_regions=settings.min_regions,
        min_zones=settings.min_zones,
        desired_zones=settings.desired_zones,
        groups=tuple(settings.groups),
        secondary_groups=tuple(settings.secondary_groups),
        workers_isolate=settings.workers_isolate,
        leave_isolation=settings.leave_isolation,
        copies=settings.executor == "copy",
        drain=tuple(sorted({*settings.drain})),
    )


def policy_text(settings: PlacementSettings) -> str:
    """The policy and its settings as one line."""
    racks = f"{many(settings.min_racks, 'rack')} per write quorum{', enforced' if settings.enforce_min_racks else ''}"
    match settings.policy:
        case "region":
            named = f" in {', '.join(settings.regions)}" if settings.regions else ""
            return f"region: {many(settings.min_regions, 'region')} per write quorum{named}"
        case "zone":
            least = many(settings.min_zones, "zone")
            return f"zone: {least} per write quorum, {settings.desired_zones} desired"
        case "isolation":
            groups = ", ".join(settings.groups)
            return f"isolation: {racks}; {f'groups {groups}' if groups else 'no groups'} by default"
    return f"rack: {racks}"
