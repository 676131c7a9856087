"""One RocketMQ cluster: its name servers, the routes of topics, its brokers by name, and requests to their masters.

Name servers do not know of each other. One that was just started knows only some brokers for up to 30 s, the interval
at which brokers register; therefore all name servers are asked, and what any of them knows counts.
"""

import threading
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from trueup.connectors.closing import Closing
from trueup.connectors.contract import Endpoint, LogId
from trueup.connectors.rocketmq.client.codes import NoRoute, RequestCode
from trueup.connectors.rocketmq.client.connection import RocketMqConnection, RocketMqRequest, RocketMqResponse
from trueup.connectors.rocketmq.client.options import access_of, addresses_of
from trueup.state.common.errors import BadBytes, Retry, TrueupError

MASTER = "0"
READABLE, WRITABLE = 4, 2
_MOST_QUEUES, _TOGETHER = 1 << 16, 256
_INVALID = (KeyError, TypeError, ValueError, AttributeError, OverflowError)


@dataclass(frozen=True, slots=True)
class Queues:
    """The queues of a topic on one broker."""

    read: int
    """The number of queues to read from (readQueueNums)."""
    write: int
    """The number of queues to write to (writeQueueNums)."""
    permissions: int
    """The bits `READABLE` and `WRITABLE`."""


class RocketMqClient(Closing):
    """Routes as of their last request, and one connection per server for short requests. Safe for several threads."""

    def __init__(self, endpoint: Endpoint) -> None:
        self.endpoint = endpoint
        self._access = access_of(endpoint)
        self._name_servers = addresses_of(endpoint)
        self._masters: dict[str, str] = {}
        self._open: dict[str, RocketMqConnection] = {}
        self._locks: defaultdict[str, threading.Lock] = defaultdict(threading.Lock)

    def route(self, topic: str) -> dict[str, Queues]:
        """The queues of a topic by broker, as the name servers know them now. Brokers without a master are left out.

        Raises `NoRoute` if no name server that responds knows the topic.
        """
        fields = {"topic": topic, "acceptStandardJsonOnly": True}
        by_broker: dict[str, Queues] = {}
        for response in self._responses(
            RocketMqRequest(RequestCode.ROUTE, f"find the brokers of topic {topic}", fields)
        ):
            route = response.parsed()
            try:
                masters = _masters(route["brokerDatas"])
                queues = {entry["brokerName"]: _queues(entry) for entry in route["queueDatas"]}
            except _INVALID as error:
                raise _bad_bytes(response, error) from error
            self._masters |= masters
            by_broker = {broker: queues[broker] for broker in queues.keys() & masters} | by_broker
        return dict(sorted(by_broker.items()))

    def logs(self, topic: str, permission: int = READABLE) -> list[LogId]:
        """The queues of a topic that can be read or written, by broker and number. Raises `NoRoute`."""
        return [
            LogId(topic, number, broker)
            for broker, queues in self.route(topic).items()
            if queues.permissions & permission
            for number in range(queues.read if permission == READABLE else queues.write)
        ]

    def masters(self) -> dict[str, str]:
        """The address of the master of each broker, by the broker's name, as the name servers know them now."""
        request = RocketMqRequest(RequestCode.CLUSTER, "list the brokers", {})
        addresses: dict[str, str] = {}
        for response in self._responses(request):
            try:
                addresses = _masters(response.parsed()["brokerAddrTable"].values()) | addresses
            except _INVALID as error:
                raise _bad_bytes(response, error) from error
        self._masters = dict(addresses)
        return addresses

    def refresh(self) -> None:
        """Find masters that changed: a former one that stays up as a replica does not close its connections. A broker
        that no name server knows now keeps its master: a name server that was just started knows none."""
        former = self._masters
        with suppress(Retry):
            self._masters = former | self.masters()

    def replaced(self, broker: str, connection: RocketMqConnection) -> bool:
        """Whether this connection is not to the master of the broker, as of the last request for it."""
        return self._masters.get(broker, connection.name) != connection.name

    def topics(self) -> list[str]:
        """The names of all topics, sorted."""
        return sorted(self._topics(RocketMqRequest(RequestCode.TOPICS, "list the topics", {})))

    def own_names(self) -> set[str]:
        """The names of clusters and brokers. Each broker has topics with these names."""
        return self._topics(RocketMqRequest(RequestCode.SYSTEM_TOPICS, "list the names of clusters and brokers", {}))

    def _topics(self, request: RocketMqRequest) -> set[str]:
        names: set[str] = set()
        for response in self._responses(request):
            try:
                names |= set(map(str, response.parsed()["topicList"]))
            except _INVALID as error:
                raise _bad_bytes(response, error) from error
        return names

    def ask(self, broker: str, request: RocketMqRequest) -> RocketMqResponse:
        """Ask the master of a broker. A kept connection that broke meanwhile is replaced once, unless the outcome is
        unknown then. Raises `Retry` and `Stop`, and `Unknown` for a lost response to a change."""
        address = self._address(broker)
        try:
            return self._ask(address, request)
        except Retry:
            if address not in self._open:
                self._masters.pop(broker, None)  # it may have moved
            raise

    def ask_each(self, broker: str, requests: Sequence[RocketMqRequest]) -> list[RocketMqResponse | TrueupError]:
        """Ask the master of a broker many short questions, several at a time; an error of one is in the result. Raises
        `Retry` and `Stop` if the broker does not respond."""
        address = self._address(broker)
        with self._locks[address]:
            try:
                return list(_answers(self._connection(address), requests))
            except Retry:
                self._masters.pop(broker, None)  # it may have moved
                raise
            finally:
                self._drop_lost(address)

    def supports(self, broker: str, code: RequestCode) -> bool:
        """Whether the master of a broker may have such requests: it did not refuse one on its kept connection. A broker
        that is upgraded closes its connections."""
        kept = self._open.get(self._masters.get(broker, ""))
        return kept is None or code not in kept.unsupported

    def ask_name_servers(self, request: RocketMqRequest) -> None:
        """Ask every name server. Raises what the first of them does that fails."""
        for address in self._name_servers:
            self._ask(address, request)

    def connect(self, broker: str) -> RocketMqConnection:
        """A new connection to the master of a broker, for one thread; the caller closes it. Raises `Retry`, `Stop`."""
        address = self._address(broker)
        try:
            return RocketMqConnection(address, self._access)
        except Retry:
            self._masters.pop(broker, None)
            raise

    def close(self) -> None:
        """Close the connections for short requests."""
        for address in list(self._open):
            self._drop(address)

    def _address(self, broker: str) -> str:
        address = self._masters.get(broker) or self.masters().get(broker)
        if address is None:
            expected = f"a master of broker {broker} in {self.endpoint.name}"
            raise Retry(expected, "none is registered at the name servers", "start it; retrying")
        return address

    def _responses(self, request: RocketMqRequest) -> list[RocketMqResponse]:
        """The responses of all name servers that know what is asked. Raises `NoRoute` or `Retry` if there is none."""
        responses, error = list[RocketMqResponse](), None
        for address in self._name_servers:
            try:
                responses.append(self._ask(address, request))
            except Retry as failure:
                error = failure if isinstance(failure, NoRoute) else error or failure
        if not responses and error:
            raise error
        return responses

    def _ask(self, address: str, request: RocketMqRequest) -> RocketMqResponse:
        with self._locks[address]:
            kept = self._open.get(address)
            try:
                return self._connection(address).ask(request)
            except TrueupError as error:
                lost = self._drop_lost(address)
                if not (lost and kept and isinstance(error, Retry)):
                    raise
            try:
                return self._connection(address).ask(request)
            finally:
                self._drop_lost(address)

    def _drop_lost(self, address: str) -> bool:
        """Whether the kept connection was lost; it is dropped then."""
        kept = self._open.get(address)
        if kept is None or not kept.lost:
            return False
        self._drop(address)
        return True

    def _connection(self, address: str) -> RocketMqConnection:
        """The kept connection, unless the server closed it: the outcome of a change would be unknown then."""
        if address in self._open and self._open[address].ended():
            self._drop(address)
        if address not in self._open:
            self._open[address] = RocketMqConnection(address, self._access)
        return self._open[address]

    def _drop(self, address: str) -> None:
        self._open.pop(address).close()


def _answers(
    connection: RocketMqConnection, requests: Sequence[RocketMqRequest]
) -> Iterator[RocketMqResponse | TrueupError]:
    for start in range(0, len(requests), _TOGETHER):
        for pending in [connection.submit(request) for request in requests[start : start + _TOGETHER]]:
            try:
                yield connection.wait(pending)
            except TrueupError as error:
                if connection.lost:
                    raise
                yield error


def _masters(brokers: Iterable[Mapping[str, Any]]) -> dict[str, str]:
    """The addresses of masters in BrokerData objects, which list the addresses of each broker by broker id."""
    return {str(b["brokerName"]): str(b["brokerAddrs"][MASTER]) for b in brokers if MASTER in b["brokerAddrs"]}


def _queues(entry: Mapping[str, Any]) -> Queues:
    queues = Queues(int(entry["readQueueNums"]), int(entry["writeQueueNums"]), int(entry["perm"]))
    if not 0 <= min(queues.read, queues.write) <= max(queues.read, queues.write) <= _MOST_QUEUES:
        raise ValueError(f"0 to {_MOST_QUEUES} queues, not {queues.read} and {queues.write}")
    return queues


def _bad_bytes(response: RocketMqResponse, error: Exception) -> BadBytes:
    return BadBytes(response.where, 0, "brokers and topics", f"{type(error).__name__}: {error}", "check its version")
