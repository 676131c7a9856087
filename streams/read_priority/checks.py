"""Checks of `trueup doctor` on the admin API: brokers, rights, and settings that affect the read priority."""

from collections.abc import Iterator

from trueup.state.common.errors import BadSettings
from trueup.state.read_priority.policies import BrokerFacts, broker_ignored, defaulted
from trueup.state.read_priority.settings import ReadPrioritySettings
from trueup.state.read_priority.tiers import ReadPriority
from trueup.state.settings.settings import Settings
from trueup.streams.runtime.checks import Check, fail, ok, tried, warn

_TODO = {
    "read_priority.ca": "set it to the PEM file of its authority",
    "read_priority.admin": "start the broker, or correct the address",
}
_DEFAULT = ReadPriority.TIERED_STORAGE_FIRST


def all_of(settings: Settings) -> Iterator[Check]:
    """A check per broker, if the stream is declared."""
    section = settings.section(ReadPrioritySettings)
    if section.admin:
        yield from tried("read_priority.admin", lambda: _brokers(section))


def _brokers(section: ReadPrioritySettings) -> Iterator[Check]:
    from trueup.connectors.pulsar.admin.http import Unauthorized, Untrusted
    from trueup.streams.read_priority.stream import admin_of

    if section.token_env and any(address.startswith("http:") for address in section.admin):
        yield warn("read_priority.admin", "the token is sent without TLS", "use https addresses")
    try:
        with admin_of(section) as admin:
            answers = admin.answers()
    except Unauthorized as error:
        yield fail("read_priority.token_env", f"expected {error.expected}; found {error.found}", error.todo)
        return
    except BadSettings as error:
        yield fail(
            "read_priority.ca", f"expected a readable PEM file; found {error.problems[0]}", "correct read_priority.ca"
        )
        return
    for problem in answers.problems:
        key = "read_priority.ca" if isinstance(problem, Untrusted) else "read_priority.admin"
        yield fail(key, f"expected {problem.expected}; found {problem.found}", _TODO[key])
    for broker in answers.brokers:
        yield _broker(broker)
    if len({broker.priority for broker in answers.brokers}) > 1:
        yield fail(
            "read_priority.admin", "brokers differ in managedLedgerDataReadPriority", "give all brokers the same value"
        )


def _broker(broker: BrokerFacts) -> Check:
    name, version = f"read_priority.admin: {broker.address}", ".".join(map(str, broker.version))
    text = f"version {version}, managedLedgerDataReadPriority {broker.priority or f'not set, {_DEFAULT}'}"
    if broker_ignored(broker.version):
        return warn(name, f"{text}; this version ignores that setting", "set the priority in policies, or upgrade")
    if defaulted(broker.version):
        todo = "every policy object without the field counts as tiered-storage-first; upgrade to 3.3.7, 4.0.5 or later"
        return warn(name, text, todo)
    return ok(name, text)
