"""The administrative client of one cluster: blocking calls, with Trueup's errors.

librdkafka sends many requests at once and reports a result for each, so one invalid topic does not affect others. It
reports login and certificate errors only in a callback, while requests time out: this module combines both.
"""

from collections.abc import Callable, Mapping
from concurrent.futures import Future
from typing import Any, TypeVar

from confluent_kafka import KafkaError, KafkaException, TopicPartition
from confluent_kafka.admin import AdminClient

from trueup.connectors.closing import Closing
from trueup.connectors.contract import Endpoint
from trueup.connectors.kafka.client.options import client_errors, librdkafka
from trueup.connectors.kafka.client.security import remedy
from trueup.connectors.replaced import Replaced
from trueup.state.common.errors import Retry, Stop, TrueupError, Unknown

TIMEOUT_S = 15.0
SILENT = 3
"""Consecutive lost responses after which the client is replaced: a client can hang while its cluster is healthy."""
_LOGIN = frozenset(
    {
        KafkaError._AUTHENTICATION,
        KafkaError.SASL_AUTHENTICATION_FAILED,
        KafkaError.UNSUPPORTED_SASL_MECHANISM,
        KafkaError._SSL,
    }
)
DENIED = frozenset(
    {
        KafkaError.TOPIC_AUTHORIZATION_FAILED,
        KafkaError.GROUP_AUTHORIZATION_FAILED,
        KafkaError.CLUSTER_AUTHORIZATION_FAILED,
        KafkaError.DELEGATION_TOKEN_AUTHORIZATION_FAILED,
    }
)
MISSING = frozenset({KafkaError.UNKNOWN_TOPIC_OR_PART, KafkaError._UNKNOWN_TOPIC, KafkaError._UNKNOWN_PARTITION})
_REFUSED = frozenset(
    {
        KafkaError.INVALID_CONFIG,
        KafkaError.INVALID_PARTITIONS,
        KafkaError.INVALID_REPLICATION_FACTOR,
        KafkaError.INVALID_REPLICA_ASSIGNMENT,
        KafkaError.INVALID_REQUEST,
        KafkaError.POLICY_VIOLATION,
        KafkaError.SECURITY_DISABLED,
        KafkaError.TOPIC_EXCEPTION,
        KafkaError.UNSUPPORTED_VERSION,
        KafkaError._UNSUPPORTED_FEATURE,
        KafkaError._INVALID_ARG,
        KafkaError.TOPIC_ALREADY_EXISTS,
    }
)
_LOST = frozenset(
    {
        KafkaError._TIMED_OUT,
        KafkaError._TRANSPORT,
        KafkaError.REQUEST_TIMED_OUT,
        KafkaError._ALL_BROKERS_DOWN,
        KafkaError._DESTROY,
        KafkaError._DESTROY_BROKER,
    }
)
"""Errors after which it is not known whether the broker received the request. A client with several bootstrap servers
drops their connections (_DESTROY_BROKER) once it knows the brokers, also while one waits for a response."""
K = TypeVar("K")
V = TypeVar("V")


class Admin(Closing):
    """One client for all administrative requests to a cluster; ``name`` is Trueup's name of the cluster.

    Every method raises `Retry` if the cluster does not respond within ``timeout_s`` seconds, `Stop` if it refuses
    the client's identity, `BadSettings` if the options are invalid. Safe to use from several threads; not across forks.
    """

    def __init__(self, endpoint: Endpoint, timeout_s: float = TIMEOUT_S) -> None:
        self.endpoint, self.name, self.timeout_s = endpoint, endpoint.name, timeout_s
        self._login: KafkaError | None = None
        self._silent = 0
        self._replaced = Replaced(endpoint.security)
        self._client = self._made()

    @property
    def client(self) -> AdminClient:
        """The client; another one after a file of its section security was replaced."""
        if (renewed := self._replaced.renewed(self._made)) is not None:
            self._client = renewed
        return self._client

    def _made(self) -> AdminClient:
        with client_errors(self.name):
            return AdminClient(librdkafka(self.endpoint, error_cb=self._on_error))

    def close(self) -> None:
        """Close all connections. The client is unusable then."""
        del self._client

    def ask(self, doing: str, call: Callable[..., "Future[V]"], *given: object, **more: object) -> V:
        """The result of a call with one response. ``doing`` completes "to ... "."""
        return self._result(doing, call(*given, request_timeout=self.timeout_s, **more))

    def ask_each(
        self, doing: str, call: Callable[..., Mapping[K, "Future[V]"]], *given: object, **more: object
    ) -> dict[K, V | TrueupError]:
        """The results of a call with one response per item: a value, or the error. Errors of the whole cluster are
        raised."""
        return self.results(doing, call(*given, request_timeout=self.timeout_s, **more))

    def do_each(
        self, doing: str, call: Callable[..., Mapping[K, "Future[V]"]], *given: object, **more: object
    ) -> dict[K, V | TrueupError]:
        """Like `ask_each`, for changes: a lost response is `Unknown`, and nothing is raised."""
        futures = call(*given, request_timeout=self.timeout_s, **more)
        return {key: self._done(f"{doing} {_shown(key)}", future) for key, future in futures.items()}

    def results(self, doing: str, futures: Mapping[K, "Future[V]"]) -> dict[K, V | TrueupError]:
        """The result of `ask_each` for calls already made."""
        return {key: self._one(f"{doing} {_shown(key)}", future) for key, future in futures.items()}

    def error(self, doing: str, error: KafkaError, changing: bool = False) -> TrueupError:
        """Trueup's error for one of the client's. ``changing``: whether the request was a change."""
        code, found = error.code(), f"{error.name()}: {error.str()}"
        expected = f"{self.name} to {doing}"
        if code in _LOST and (login := self._trouble()) is not None:
            todo = remedy(login.str(), f"kafka.{self.name}") or "check user, password and certificates"
            return Stop(expected, f"{login.name()}: {login.str()}", todo)
        if not changing:
            self._count(code)
        if code in DENIED or code in _LOGIN:
            return Stop(expected, found, "grant it to the link's user" if code in DENIED else "check user, password")
        if code in MISSING or code in _REFUSED:
            return Stop(expected, found, "check the broker's error; a retry does not help")
        if code in _LOST and changing:
            return Unknown(expected, found, "check whether it happened")
        return Retry(expected, found, "check its brokers; retrying")

    def _count(self, code: int) -> None:
        """Count lost responses, and replace the client after too many in a row."""
        self._silent = self._silent + 1 if code in _LOST else 0
        if self._silent >= SILENT:
            self._silent = 0
            self._client = self._made()

    def _on_error(self, error: KafkaError) -> None:
        if error.code() in _LOGIN or remedy(error.str(), ""):
            self._login = error

    def _trouble(self) -> KafkaError | None:
        """The client's last error about its login, since the previous call."""
        self.client.poll(0)
        trouble, self._login = self._login, None
        return trouble

    def _result(self, doing: str, future: "Future[V]") -> V:
        try:
            value = future.result()
        except KafkaException as error:
            raise self.error(doing, error.args[0]) from error
        self._silent = 0
        return value

    def _one(self, doing: str, future: "Future[Any]") -> Any:
        try:
            value = future.result()
        except KafkaException as error:
            failure = self.error(doing, error.args[0])
            failure.__cause__ = error
            code = error.args[0].code()
            if code in _LOST or code in _LOGIN:
                raise failure from error
            return failure
        self._silent = 0
        return value

    def _done(self, doing: str, future: "Future[Any]") -> Any:
        try:
            return future.result()
        except KafkaException as error:
            failure = self.error(doing, error.args[0], changing=True)
            failure.__cause__ = error
            return failure


def _shown(key: Any) -> str:
    if isinstance(key, TopicPartition):
        return f"{key.topic}-{key.partition}"
    return str(getattr(key, "name", key))


def code_of(error: TrueupError) -> int:
    """The client's code of an error from `Admin`; 0 for others."""
    cause = error.__cause__
    return int(cause.args[0].code()) if isinstance(cause, KafkaException) else 0


def missing(error: TrueupError) -> bool:
    """Whether the error states that a topic or partition does not exist."""
    return code_of(error) in MISSING
