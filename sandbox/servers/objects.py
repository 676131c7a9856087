"""An object store with an S3 API, on loopback and in memory (moto's server): its content is lost when it ends."""

import sys
from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path

import urllib3

from trueup.connectors.embedded.processes import Port, Process
from trueup.connectors.embedded.server import LocalServer
from trueup.state.common.errors import Stop

REGION = "us-east-1"
CREDENTIALS = {"ACCESS_KEY_ID": "sandbox", "ACCESS_KEY_SECRET": "sandbox"}
"""Credentials in the form that brokers read; the server accepts any."""


class Objects(LocalServer):
    """The server. ``buckets`` exist when it is ready. ``tls``: the files of its certificate and key."""

    def __init__(
        self, root: Path, port: Port | None = None, buckets: Sequence[str] = (), tls: tuple[Path, Path] | None = None
    ) -> None:
        super().__init__("objects", root.absolute())
        self._port, self._buckets, self._tls = port or Port(), tuple(buckets), tls
        self._http = urllib3.PoolManager(ca_certs=str(tls[0]) if tls else None)

    @property
    def endpoint(self) -> str:
        """Address for clients."""
        return f"{'https' if self._tls else 'http'}://{self._port}"

    def make(self) -> Process:
        """A separate Python process. Raises `Stop` if moto is not installed."""
        if find_spec("moto") is None:
            raise Stop("moto, which provides the object store", "none", "install trueup[dev]")
        command: list[object] = [sys.executable, "-m", "trueup.sandbox.servers.s3", self._port.host, self._port.number]
        command += self._tls or ()
        return Process(self.name, command, self.log, {"PYTHONUNBUFFERED": "1"}, self.root)

    def is_ready(self) -> bool:
        """Whether it responds."""
        try:
            return bool(self._http.request("GET", self.endpoint, timeout=5.0, retries=False).status == 200)
        except urllib3.exceptions.HTTPError:
            return False

    def wait_ready(self) -> None:
        """Wait until it responds, and create its buckets."""
        super().wait_ready()
        for name in self._buckets:
            self.bucket(name)

    def copy(self, bucket: str, key: str, to: str) -> None:
        """Copy an object with its metadata."""
        source = {"x-amz-copy-source": f"/{bucket}/{key}"}
        answer = self._http.request(
            "PUT", f"{self.endpoint}/{bucket}/{to}", headers=source, timeout=10.0, retries=False
        )
        if answer.status != 200:
            raise Stop(f"a copy of {key}", f"status {answer.status}", f"check {self.log}")

    def bucket(self, name: str) -> None:
        """Create an empty bucket."""
        answer = self._http.request("PUT", f"{self.endpoint}/{name}", timeout=10.0, retries=False)
        if answer.status != 200:
            raise Stop(f"the creation of bucket {name}", f"status {answer.status}", f"check {self.log}")

    def close(self) -> None:
        """Kill it and release its port."""
        super().close()
        self._port.release()
