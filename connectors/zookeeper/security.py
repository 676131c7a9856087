"""Sections cluster.security and cluster.auth as options of a client, and what to change after a refusal.

Sources: kazoo 2.11 for the options; org.apache.zookeeper.server.auth for the schemes.
"""

import socket
import ssl
from collections.abc import Callable, Mapping
from typing import Any

from kazoo.handlers.threading import SequentialThreadingHandler
from kazoo.security import ACL, CREATOR_ALL_ACL, Permissions

from trueup.connectors.secrets import resolved
from trueup.connectors.tls import refusal, tls_of
from trueup.state.common.errors import BadSettings
from trueup.state.settings.zookeeper_security import SECRETS, has_identity

PATH = "cluster.security"
_CUT = (
    f"check that the port uses TLS as {PATH}.tls.* says (a port without TLS closes connections with it), and that the "
    f"server accepts {PATH}.tls.certificate"
)
_CLOSED = f"check that the server is healthy; if this port uses TLS, set {PATH}.tls.ca"


def options_of(security: Mapping[str, str], auth: Mapping[str, str]) -> dict[str, Any]:
    """Options of `ZooKeeperClient`. Secrets are read now, certificates at each connection. Raises `BadSettings`."""
    settings = resolved(security, SECRETS, PATH)
    tls = {name: value for name, value in settings.items() if name.startswith("tls.")}
    users = [*auth.items()]
    if user := settings.get("digest.username"):
        users.append(("digest", f"{user}:{settings['digest.password']}"))
    options: dict[str, Any] = {"auth_data": users or None}
    if mechanism := settings.get("sasl.mechanism"):
        options["sasl_options"] = {
            "mechanism": mechanism,
            "username": settings["sasl.username"],
            "password": settings["sasl.password"],
        }
    if tls:
        _certain(tls)
        options["handler"] = TlsHandler(lambda: _certain(tls))
    if has_identity(security, auth):
        options["default_acl"] = CREATOR_ALL_ACL
    return options


class TlsHandler(SequentialThreadingHandler):  # type: ignore[misc]
    """kazoo's threads, with connections over TLS. kazoo's own TLS trusts the machine's authorities beside a given one.

    ``context`` is called for each connection, so that certificates that were replaced are used from then on.
    """

    def __init__(self, context: Callable[[], ssl.SSLContext]) -> None:
        super().__init__()
        self._context = context

    def create_connection(
        self, address: tuple[str, int], hostname: str | None = None, timeout: float | None = None, **_: object
    ) -> ssl.SSLSocket:
        """A connection after its handshake. Raises `OSError`."""
        try:
            context = self._context()
        except BadSettings as error:
            raise OSError(str(error)) from error
        plain = socket.create_connection(address, timeout)
        try:
            plain.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            return context.wrap_socket(plain, server_hostname=hostname or address[0])
        except BaseException:
            plain.close()
            raise


def shared(acl: list[ACL]) -> list[ACL]:
    """The permissions of a znode that this client creates below a znode with ``acl``: all for the client, for others
    those of ``acl`` without the permission to change permissions."""
    others = [ACL(entry.perms & ~Permissions.ADMIN, entry.id) for entry in acl]
    return [*CREATOR_ALL_ACL, *(entry for entry in others if entry.perms)]


def remedy(trouble: OSError | None, tls: bool) -> str:
    """What to do if no session was established. ``trouble``: the last error of a connection; ``tls``: it used TLS."""
    if trouble is None:
        return ""
    if todo := refusal(trouble, PATH):
        return todo
    if isinstance(trouble, ConnectionRefusedError | socket.gaierror | TimeoutError):
        return ""
    if isinstance(trouble, ssl.SSLError) or tls:
        return _CUT
    return _CLOSED


def _certain(tls: Mapping[str, str]) -> ssl.SSLContext:
    context = tls_of(tls, PATH)
    assert context is not None, "options are given"
    return context
