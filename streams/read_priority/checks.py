"""Checks of `trueup doctor` on the admin API: brokers, rights, and settings that affect the read priority."""

from collections.abc import Iterator

from trueup.state.common.errors import BadSettings
from trueup.state.read_priority.policies import BrokerFacts, broker_ignored, defaulted
from trueup.state.read_priority.settings import ReadsSettings
from trueup.state.read_priority.tiers import ReadPriority
from trueup.state.settings.settings import Settings
from trueup.streams.runtime.checks import Check, fail, ok, tried, warn

_TODO = {
    "reads.ca": "set it to the PEM file of its authority", "reads.admin": "start the broker, or correct the address",
}  # fmt: skip
_DEFAULT = ReadPriority.TIERED_STORAGE_FIRST


def all_of(settings: Settings) -> Iterator[Check]:
    """A check per broker, if the stream is declared."""
    chosen = settings.section(ReadsSettings)
    if chosen.admin:
        yield from tried("reads.admin", lambda: _brokers(chosen))


def _brokers(chosen: ReadsSettings) -> Iterator[Check]:
    from trueup.connectors.pulsar.admin.http import Unauthorized, Untrusted
    from trueup.streams.read_priority.stream import admin_of

    if chosen.token_env and any(address.startswith("http:") for address in chosen.admin):
        yield warn("reads.admin", "the token is sent without TLS", "use https addresses")
    try:
        with admin_of(chosen) as admin:
            found = admin.answers()
    except Unauthorized as error:
        yield fail("reads.token_env", f"expected {error.expected}; found {error.found}", error.todo)
        return
    except BadSettings as error:
        yield fail("reads.ca", f"expected a readable PEM file; found {error.problems[0]}", "correct reads.ca")
        return
    for problem in found.problems:
        key = "reads.ca" if isinstance(problem, Untrusted) else "reads.admin"
        yield fail(key, f"expected {problem.expected}; found {problem.found}", _TODO[key])
    for broker in found.brokers:
        yield _broker(broker)
    if len({broker.priority for broker in found.brokers}) > 1:
        yield fail("reads.admin", "brokers differ in managedLedgerDataReadPriority", "give all brokers the same value")


def _broker(broker: BrokerFacts) -> Check:
    name, version = f"reads.admin: {broker.address}", ".".join(map(str, broker.version))
    text = f"version {version}, managedLedgerDataReadPriority {broker.priority or f'not set, {_DEFAULT}'}"
    if broker_ignored(broker.version):
        return warn(name, f"{text}; this version ignores that setting", "set the priority in policies, or upgrade")
    if defaulted(broker.version):
        todo = "every policy object without the field counts as tiered-storage-first; upgrade to 3.3.7, 4.0.5 or later"
        return warn(name, text, todo)
    return ok(name, text)
