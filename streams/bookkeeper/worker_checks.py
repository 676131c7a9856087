"""Checks of AutoRecovery daemons through their HTTP API: the repair flag, whether their version heeds it, and whether
they use the same racks as Trueup.

`GET /api/v1/config/server_config` (BookKeeper's ConfigurationService) returns their configuration.
"""

import json
import os
from collections.abc import Iterator, Mapping

import urllib3
from urllib3.exceptions import HTTPError

from trueup.connectors.bookkeeper.metadata.racks import RackMap, Script, Unmapped
from trueup.state.common.counts import many
from trueup.state.common.errors import BadSettings
from trueup.state.placement.policy.fragments import BY_RACKS
from trueup.state.placement.settings import PlacementSettings
from trueup.state.settings.settings import Settings
from trueup.streams.bookkeeper.worker_versions import LACKS, REMEDY, TIMEOUT, base_of, is_outdated
from trueup.streams.runtime.checks import Check, fail, ok, warn

REPAIRS = "repairedPlacementPolicyNotAdheringBookieEnabled"
MIN_RACKS, ENFORCE = "minNumRacksPerWriteQuorum", "enforceMinNumRacksPerWriteQuorum"
SCRIPT, RESOLVER, POLICY = "networkTopologyScriptFileName", "reppDnsResolverClass", "ensemblePlacementPolicy"
GROUPS = "isolationBookieGroups"
BY_SCRIPT = "ScriptBasedMapping"
CLASSES = {
    "rack": ("RackawareEnsemblePlacementPolicy",),
    "region": ("RegionAwareEnsemblePlacementPolicy",),
    "zone": ("ZoneawareEnsemblePlacementPolicy",),
    "isolation": ("RackawareEnsemblePlacementPolicy", "IsolatedBookieEnsemblePlacementPolicy"),
}
"""The classes that workers may use under each placement.policy."""
Conf = Mapping[str, str]


def none_named() -> Check:
    """The settings name no daemon."""
    return warn(
        "workers",
        "cluster.autorecovery is empty",
        "add the HTTP addresses of the AutoRecovery daemons, so that their settings and racks are checked",
    )


def worker(settings: Settings, address: str, places: Mapping[str, str], hosts: Mapping[str, str]) -> Iterator[Check]:
    """Checks of one daemon. ``places``: rack of every bookie in Trueup; ``hosts``: what bookies published."""
    name = f"worker {short(address)}"
    conf = _configuration(address)
    if isinstance(conf, str):
        yield fail(name, conf, "start it with httpServerEnabled=true, or correct cluster.autorecovery")
        return
    wrong = list(_settings(settings, conf))
    if settings.section(PlacementSettings).policy in BY_RACKS and is_outdated(address):
        yield fail(name, LACKS, REMEDY)
    elif wrong:
        yield fail(name, "; ".join(wrong), "change its configuration or Trueup's, and restart it")
    else:
        yield ok(name, _does(settings.section(PlacementSettings)))
    yield _racks(f"racks of {short(address)}", settings, conf, places, hosts)


def short(address: str) -> str:
    """host:port of an address."""
    return address.partition("://")[2] or address


def _configuration(address: str) -> Conf | str:
    """Configuration of the daemon, or the reason why it is not available."""
    try:
        with urllib3.PoolManager(timeout=TIMEOUT, retries=False) as pool:
            response = pool.request("GET", f"{base_of(address)}/api/v1/config/server_config")
            conf = json.loads(response.data)
    except HTTPError as error:
        return str(getattr(error, "reason", None) or error).rpartition(": ")[2]
    except ValueError:
        return f"HTTP {response.status} without JSON"
    return conf if isinstance(conf, dict) and response.status == 200 else f"HTTP {response.status}"


def _settings(settings: Settings, conf: Conf) -> Iterator[str]:
    """Differences from the required configuration. Defaults are those of BookKeeper's ServerConfiguration."""
    ours = settings.section(PlacementSettings)
    for key, (default, expected) in _expected(ours).items():
        value = str(conf.get(key, default))
        if value.lower() != expected.lower():
            yield f"{key} is {value or 'empty'}, expected {expected or 'none'}"
    policy = str(conf.get(POLICY, CLASSES["rack"][0])).rpartition(".")[2]
    if policy not in CLASSES[ours.policy]:
        classes = " or ".join(CLASSES[ours.policy])
        yield f"{POLICY} is {policy}, expected {classes} because placement.policy is {ours.policy}"
    isolates = policy == CLASSES["isolation"][1] and conf.get(GROUPS) is not None
    if ours.policy == "isolation" and ours.workers_isolate and not isolates:
        yield f"placement.workers_isolate is true, and the daemon does not use {CLASSES['isolation'][1]} with {GROUPS}"


def _does(ours: PlacementSettings) -> str:
    if ours.policy in ("region", "zone"):
        return f"replaces lost bookies under the policy {ours.policy}; workers do not repair its placement"
    within = " within its groups" if ours.workers_isolate else ""
    groups = f"; replaces lost bookies{within or ' of any group'}" if ours.policy == "isolation" else ""
    return f"repairs placement with the same minimum of racks{groups}"


def _expected(ours: PlacementSettings) -> dict[str, tuple[str, str]]:
    """Keys of the daemon with BookKeeper's default and the value that the declared policy requires."""
    if ours.policy == "region":
        regions = {"reppRegionsToWrite": ("", ";".join(ours.regions))}
        return {**regions, "reppMinimumRegionsForDurability": ("2", str(ours.min_regions))}
    if ours.policy == "zone":
        return {
            REPAIRS: ("false", "false"),  # replaceToAdherePlacementPolicy of the class throws
            "minNumZonesPerWriteQuorum": ("2", str(ours.min_zones)),
            "desiredNumZonesPerWriteQuorum": ("3", str(ours.desired_zones)),
        }
    racks = {MIN_RACKS: ("2", str(ours.min_racks)), ENFORCE: ("false", str(ours.enforce_min_racks).lower())}
    return {REPAIRS: ("false", "true"), **racks}


def _racks(name: str, settings: Settings, conf: Conf, places: Mapping[str, str], hosts: Mapping[str, str]) -> Check:
    resolver = str(conf.get(RESOLVER, BY_SCRIPT)).rpartition(".")[2]
    script = str(conf.get(SCRIPT) or "")
    if resolver != BY_SCRIPT or (settings.racks.source == "pulsar" and not script):
        return _pulsar(name, settings, resolver)
    if (
        settings.racks.source == "script"
        and script
        and os.path.realpath(script) == os.path.realpath(settings.racks.script)
    ):
        return ok(name, f"the same script, {script}")
    if script and not os.access(script, os.X_OK):
        return warn(name, f"its script {script} cannot be run here", "compare it with racks.* manually")
    try:
        theirs: RackMap = Script(script) if script else Unmapped()
        return _compared(name, places, {b: r or "/default-rack" for b, r in theirs.resolve(places, hosts).items()})
    except BadSettings:
        return warn(name, f"its script {script} fails here", "compare it with racks.* manually")


def _pulsar(name: str, settings: Settings, resolver: str) -> Check:
    both = settings.racks.source == "pulsar" and resolver.endswith("BookieRackAffinityMapping")
    if both:
        return ok(name, "both use Pulsar's /bookies")
    difference = f"{RESOLVER} is {resolver}, racks.source is {settings.racks.source}"
    return fail(name, difference, "use the same rack source in both; otherwise repairs never end")


def _compared(name: str, ours: Mapping[str, str], theirs: Mapping[str, str]) -> Check:
    apart = [f"{bookie} in {theirs[bookie]}, here {rack}" for bookie, rack in ours.items() if theirs[bookie] != rack]
    if not apart:
        return ok(name, f"the same racks for {many(len(ours), 'bookie')}")
    more = f" and {len(apart) - 3} more" if len(apart) > 3 else ""
    todo = "use the same rack source in both; otherwise repairs never end"
    return fail(name, f"different racks of {many(len(apart), 'bookie')}: {'; '.join(apart[:3])}{more}", todo)
