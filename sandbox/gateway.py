"""A JVM that Python drives through py4j's server, so that BookKeeper's client needs no Java source here."""

import re
from importlib.metadata import distribution
from pathlib import Path
from typing import Any

from py4j.java_gateway import CallbackServerParameters, GatewayParameters, JavaGateway
from py4j.protocol import Py4JError

from trueup.connectors.embedded.jars import jars
from trueup.connectors.embedded.processes import SLOW_MACHINE_S, Process
from trueup.connectors.embedded.server import SMALL_JVM, jvm, log4j2

_GREETING = re.compile(r"^(\d+)\n(\S+)\n", re.MULTILINE)
"""The first output of the JVM: the port and the token."""


class Gateway:
    """The classes of one jar set as attributes of `java`: ``gateway.java.org.apache.bookkeeper...``.

    Access requires the token that the JVM prints at its start.
    """

    def __init__(self, name: str, root: Path, jar_set: str) -> None:
        classpath = [_py4j_jar(), *jars(jar_set)]
        logging = log4j2(root, target="SYSTEM_ERR", level="ERROR")
        main = [f"-Dlog4j2.configurationFile={logging}", "py4j.GatewayServer", "--enable-auth", "0"]
        self.process: Process = jvm(name, root, classpath, main, SMALL_JVM)
        self.process.start()
        self.process.wait_ready(lambda: _GREETING.search(self.process.output()), SLOW_MACHINE_S)
        port, token = _GREETING.findall(self.process.output())[0]
        parameters = GatewayParameters(port=int(port), auth_token=token, auto_convert=True)
        self._gateway = JavaGateway(gateway_parameters=parameters)

    @property
    def java(self) -> Any:
        """The root of all packages."""
        return self._gateway.jvm

    @property
    def client(self) -> Any:
        """The client that py4j's constructors require."""
        return self._gateway._gateway_client

    def listen(self) -> None:
        """Let the JVM call methods of Python objects whose class names Java interfaces (``class Java: implements``).

        Calls arrive on a port of 127.0.0.1 of its own, on threads of py4j. They need no token: they can only reach
        objects that were passed to the JVM.
        """
        options = CallbackServerParameters(port=0, daemonize=True, daemonize_connections=True)
        self._gateway.start_callback_server(options)
        server, port = self._gateway.java_gateway_server, self._gateway.get_callback_server().get_listening_port()
        server.resetCallbackClient(server.getCallbackClient().getAddress(), port)

    def close(self) -> None:
        """End the JVM. References to its objects are detached, or each would log an error when it is collected."""
        try:
            self._gateway.shutdown()
        except Py4JError:
            self.client.is_connected = False
        self.process.kill()


def _py4j_jar() -> Path:
    files = [file for file in distribution("py4j").files or [] if file.name.endswith(".jar")]
    return Path(str(files[0].locate())).resolve()
