"""Placement policies of BookKeeper and Pulsar in a JVM."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from py4j.java_gateway import CallbackServerParameters, GatewayParameters, JavaGateway, find_jar_path, launch_gateway

from trueup.connectors.embedded.jars import jars
from trueup.connectors.embedded.java import java


@contextmanager
def policy_gateway(jar_set: str = "bookkeeper-4.17.3") -> Iterator[JavaGateway]:
    """A JVM with the classes of a server, which can call back."""
    classpath = ":".join(map(str, jars(jar_set)))
    port, process = launch_gateway(
        jarpath=find_jar_path(),
        classpath=classpath,
        java_path=str(java()),
        die_on_exit=True,
        return_proc=True,
        javaopts=["-Xmx256m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-Djava.net.preferIPv4Stack=true"],
    )
    gateway = JavaGateway(
        gateway_parameters=GatewayParameters(port=port, auto_convert=True),
        callback_server_parameters=CallbackServerParameters(port=0, daemonize=True, daemonize_connections=True),
    )
    back = gateway.get_callback_server()
    gateway.java_gateway_server.resetCallbackClient(
        gateway.java_gateway_server.getCallbackClient().getAddress(), back.get_listening_port()
    )
    yield gateway
    gateway.shutdown()
    process.stdin.close()
    process.wait(180)


class RackMap:
    """The rack map of a policy, which asks ``locate`` for the location of an IP address. None: Java's null."""

    class Java:
        implements = ("org.apache.bookkeeper.net.DNSToSwitchMapping",)

    def __init__(self, gateway: JavaGateway, locate: Callable[[str], str | None]) -> None:
        self._gateway, self._locate = gateway, locate

    def resolve(self, names: Sequence[str]) -> Any:
        out = self._gateway.jvm.java.util.ArrayList()
        for name in names:
            out.append(self._locate(name))
        return out

    def useHostName(self) -> bool:  # noqa: N802 - names of the Java interface
        return False

    def reloadCachedMappings(self) -> None:  # noqa: N802
        pass

    def setBookieAddressResolver(self, resolver: Any) -> None:  # noqa: N802
        pass
