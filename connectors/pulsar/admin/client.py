"""Offload policies in force, and changes of their read priority, through the admin API of brokers."""

import re
from typing import NamedTuple
from urllib.parse import quote

from trueup.connectors.closing import Closing
from trueup.connectors.pulsar.admin.http import AdminHttp
from trueup.connectors.pulsar.admin.policies import OffloadPolicy, policy_of
from trueup.state.common.errors import Retry, Stop
from trueup.state.read_priority.policies import BrokerFacts, parsed_version
from trueup.state.read_priority.tiers import ReadPriority

PRIORITY, LAG = "managedLedgerDataReadPriority", "managedLedgerOffloadDeletionLagMs"


class PolicyScope(NamedTuple):
    """A namespace, or a topic of a namespace. A policy of a partitioned topic applies to all partitions."""

    tenant: str
    namespace: str
    local: str = ""
    """The last part of the name of the topic; empty if the scope is the namespace."""

    def __str__(self) -> str:
        return "/".join(part for part in self if part)

    @property
    def path(self) -> str:
        """Its part of the paths of the API."""
        kind = "persistent" if self.local else "namespaces"
        return "/".join([kind, *(quote(part, safe="") for part in self if part)])


def scope_of(name: str) -> PolicyScope:
    """The scope with this name, TENANT/NAMESPACE or TENANT/NAMESPACE/TOPIC."""
    return PolicyScope(*name.split("/", 2))


class BrokerAnswers(NamedTuple):
    """The responses of the brokers at the declared addresses."""

    brokers: tuple[BrokerFacts, ...]
    """The brokers that responded."""
    problems: tuple[Retry, ...] = ()
    """The errors of the brokers that did not respond."""


class PulsarAdmin(Closing):
    """The admin API of one cluster. Used by one thread at a time."""

    def __init__(self, http: AdminHttp) -> None:
        self._http = http

    def close(self) -> None:
        """Close all connections."""
        self._http.close()

    def brokers(self) -> BrokerAnswers:
        """Version, priority and delay of deletions of the broker at each declared address. Raises `Retry` if none
        responds, and `Stop`."""
        answers = self.answers()
        if not answers.brokers:
            problems = "; ".join(map(str, answers.problems))
            raise Retry("a response of a broker of read_priority.admin", problems, "check that a broker runs")
        return answers

    def answers(self) -> BrokerAnswers:
        """Like `brokers`, also if none responds. Raises `Stop`."""
        brokers, problems = list[BrokerFacts](), list[Retry]()
        for address in sorted(self._http.addresses):
            try:
                brokers.append(self._broker(address))
            except Retry as error:
                problems.append(error)
        return BrokerAnswers(tuple(brokers), tuple(problems))

    def _broker(self, address: str) -> BrokerFacts:
        version = parsed_version(str(self._http.get("brokers/version", address)))
        settings = self._http.get("brokers/configuration/runtime", address)
        if not isinstance(settings, dict):
            raise Stop(f"the configuration of the broker {address}", "something else", _TODO)
        value, lag = str(settings.get(PRIORITY, "")), str(settings.get(LAG, ""))
        if value not in ("", *ReadPriority):
            raise Stop(f"{PRIORITY} {' or '.join(ReadPriority)} of {address}", repr(value[:50]), _TODO)
        lag_ms = int(lag) if _NUMBER.fullmatch(lag) else None
        return BrokerFacts(address, version, ReadPriority(value) if value else None, lag_ms)

    def policy(self, scope: PolicyScope) -> OffloadPolicy:
        """The policy of this level itself. Raises `Refused` if the namespace or topic does not exist."""
        return policy_of(self._http.get(f"{scope.path}/offloadPolicies"), str(scope))

    def applied(self, scope: PolicyScope) -> OffloadPolicy:
        """The policy in force for a topic: of the topic, its namespace and the broker, merged per field."""
        return policy_of(self._http.get(f"{scope.path}/offloadPolicies?applied=true"), str(scope))

    def set(self, scope: PolicyScope, policy: OffloadPolicy) -> None:
        """Replace the policy of this level. Status 204 proves nothing: read it back."""
        self._http.send("POST", f"{scope.path}/offloadPolicies", policy.body(), policy.secrets())

    def remove(self, scope: PolicyScope) -> None:
        """Remove the policy of this level."""
        last = "offloadPolicies" if scope.local else "removeOffloadPolicies"
        self._http.send("DELETE", f"{scope.path}/{last}")

    def unload(self, scope: PolicyScope) -> None:
        """Make the broker close a topic with its cached handles of ledgers. Clients reconnect."""
        self._http.send("PUT", f"{scope.path}/unload")


_NUMBER = re.compile(r"-?\d{1,18}", re.ASCII)
_TODO = "check its version and configuration"
