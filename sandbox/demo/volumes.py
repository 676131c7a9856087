"""Small disks for a broker: tmpfs, mounted here if permitted, otherwise in a mount namespace of the broker.

In both cases the broker uses real file systems of these sizes and reports them itself.
"""

import shutil
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path

from trueup.connectors.closing import Closing
from trueup.connectors.embedded.kafka import Kafka
from trueup.connectors.embedded.processes import Process
from trueup.sandbox.demo.waiting import Say, silent, wait_for
from trueup.state.common.errors import Stop

_HOLD = (
    'set -e; while [ $# -gt 0 ]; do mount -t tmpfs -o size=$2 tmpfs "$1"; shift 2; done; echo mounted; exec sleep 1d'
)


class Volumes(Closing):
    """Small file systems in directories below ``root``. ``sizes``: the size of each file system in bytes, by the name
    of its directory. ``private``: whether a namespace is used even if mounting here is permitted; ``say``: prints what
    it waits for. ``how``: the place where the file systems are mounted, as text."""

    def __init__(self, root: Path, sizes: Mapping[str, int], private: bool = False, say: Say = silent) -> None:
        self.sizes = {root / name: size for name, size in sizes.items()}
        self._mounted: list[Path] = []
        self._holder: Process | None = None
        for path in self.sizes:
            path.mkdir(parents=True)
        if not private and self._mount():
            self.how, self.enter = "tmpfs, mounted", list[str]()
        else:
            self.how, self.enter = "tmpfs, in a mount namespace of the broker", self._hold(root, say)

    def path(self, path: str) -> Path:
        """Path on this machine of a path of the broker."""
        return Path(f"/proc/{self._holder.pid}/root{path}") if self._holder else Path(path)

    def close(self) -> None:
        """Unmount everything, at the latest when the last process that uses it ends."""
        if self._holder:
            self._holder.kill()
        while self._mounted:
            subprocess.run(["umount", "--lazy", str(self._mounted.pop())], check=False)

    def _mount(self) -> bool:
        for path, size in self.sizes.items():
            command = ["mount", "-t", "tmpfs", "-o", f"size={size}", "tmpfs", str(path)]
            if not shutil.which("mount") or subprocess.run(command, capture_output=True, check=False).returncode:
                self.close()
                return False
            self._mounted.append(path)
        return True

    def _hold(self, root: Path, say: Say) -> list[str]:
        """Mount them in a namespace that a process keeps alive; returns the command that enters it."""
        pairs = [word for path, size in self.sizes.items() for word in (str(path), str(size))]
        command = ["unshare", "-Urm", "sh", "-c", _HOLD, "sh", *pairs]
        self._holder = holder = Process("disks", command, root / "disks.log")
        expected, todo = "permission to mount small file systems", "run it as root, or allow user namespaces"
        try:
            holder.start()
        except Stop as error:
            raise Stop(expected, f"neither mount nor unshare: {error.found}", todo) from error
        wait_for("small file systems", lambda: "mounted" in holder.output() or not holder.alive, say)
        if not holder.alive:
            found = f"neither mount nor unshare: exit code {holder.exit_code}; it wrote\n{holder.tail()}"
            raise Stop(expected, found, todo)
        return ["nsenter", "-U", "-m", "--preserve-credentials", "-t", str(holder.pid)]


class OnVolumes(Kafka):
    """A node of any cluster whose log directories are file systems of `Volumes`."""

    volumes: Volumes
    """The file systems of the log directories. The settings of the node include `settings_of` these volumes."""

    def prepare(self) -> None:
        """Format every directory."""
        if not all((self.volumes.path(f"{path}/meta.properties")).exists() for path in self.volumes.sizes):
            self._format()

    def jvm(self, name: str, root: Path, main: Sequence[object], flags: Sequence[str]) -> Process:
        """A Java process in which the volumes are mounted."""
        process = super().jvm(name, root, main, flags)
        process.within(self.volumes.enter)
        return process


class DemoBroker(OnVolumes):
    """A single broker whose log directories are these volumes."""

    def __init__(self, root: Path, volumes: Volumes) -> None:
        self.volumes = volumes
        super().__init__(root, "256m", settings_of(volumes))


def settings_of(volumes: Volumes) -> dict[str, object]:
    """Settings of a broker for such disks."""
    return {
        "log.dirs": ",".join(map(str, volumes.sizes)),
        "log.segment.bytes": 4 << 20,
        "log.index.size.max.bytes": 1 << 16,
        "log.cleaner.enable": "false",
        "log.segment.delete.delay.ms": 1_000,  # one minute by default, too long for a demo
    }
