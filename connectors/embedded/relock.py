"""For maintainers: create the lock of a set again with Maven, as in ``python -m trueup.connectors.embedded.relock
kafka-4.3.1``. A file is named by its path, as in ``tests/versions/locks/kafka-2.8.2.lock``.

The lines ``# root group:artifact:version`` of a lock name its roots: these jars and all their runtime
dependencies. ``# only ...`` names a jar without its dependencies. ``# import ...`` names a pom whose versions
override those of the roots, ``# without group:artifact`` an excluded dependency.
"""

import hashlib
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from trueup.connectors.embedded.jars import Jar, lock_text
from trueup.state.common.errors import Stop

LOCKS = Path(__file__).parent / "locks"
ROOTS = ("root", "only")
_IMPORT = "<type>pom</type><scope>import</scope>"


def main(name: str) -> None:
    """Rewrite the lock of one set. Raises `Stop` if there is none, or if Maven is missing or fails."""
    place = Path(name) if name.endswith(".lock") else LOCKS / f"{name}.lock"
    text = place.read_text() if name.endswith(".lock") else lock_text(name)
    header = "".join(line for line in text.splitlines(keepends=True) if line.startswith("#"))
    with tempfile.TemporaryDirectory() as work:
        (Path(work) / "pom.xml").write_text(pom(header))
        _maven(Path(work))
        place.write_text(header + lines(Path(work) / "jars"))


def pom(header: str) -> str:
    """A Maven project that depends on the roots of a lock."""
    entries = [tuple(line.split()[1:]) for line in header.splitlines()]
    without = [coordinates for kind, coordinates in entries if kind == "without"]
    ask = "".join(_dependency(name, ["*:*"] if kind == "only" else without) for kind, name in entries if kind in ROOTS)
    versions = "".join(_dependency(name, [], _IMPORT) for kind, name in entries if kind == "import")
    return (
        "<project><modelVersion>4.0.0</modelVersion>"
        "<groupId>trueup</groupId><artifactId>relock</artifactId><version>1</version><packaging>pom</packaging>"
        f"<dependencyManagement><dependencies>{versions}</dependencies></dependencyManagement>"
        f"<dependencies>{ask}</dependencies></project>\n"
    )


def lines(directory: Path) -> str:
    """Lock lines of all jars below a directory in the layout of a Maven repository, by coordinates."""
    jars = [_jar(path.relative_to(directory), path.read_bytes()) for path in directory.rglob("*.jar")]
    ordered = sorted(jars, key=lambda jar: jar.coordinates)
    return "".join(f"{jar.sha256} {jar.size} {jar.coordinates}\n" for jar in ordered)


def _jar(place: Path, content: bytes) -> Jar:
    *group, artifact, version, name = place.parts
    classifier = name.removeprefix(f"{artifact}-{version}").removesuffix(".jar").removeprefix("-")
    return Jar(hashlib.sha256(content).hexdigest(), len(content), ".".join(group), artifact, version, classifier)


def _dependency(coordinates: str, without: Sequence[str], more: str = "") -> str:
    group, artifact, version = coordinates.split(":")
    exclusions = "".join(f"<exclusion>{_names(*name.split(':'))}</exclusion>" for name in without)
    return (
        f"<dependency>{_names(group, artifact)}<version>{version}</version>{more}"
        f"<exclusions>{exclusions}</exclusions></dependency>"
    )


def _names(group: str, artifact: str) -> str:
    return f"<groupId>{group}</groupId><artifactId>{artifact}</artifactId>"


def _maven(work: Path) -> None:
    command = ["mvn", "-q", "-B", "dependency:copy-dependencies", "-DincludeScope=runtime"]
    try:
        done = subprocess.run(
            [*command, "-Dmdep.useRepositoryLayout=true", f"-DoutputDirectory={work / 'jars'}"],
            cwd=work,
            capture_output=True,
            text=True,
            check=False,
        )
    except OSError as error:
        raise Stop("mvn, which creates locks", str(error), "install Maven") from error
    if done.returncode:
        raise Stop("mvn to resolve the roots", done.stdout[-2_000:], "correct the # lines of the lock")


if __name__ == "__main__":
    for each in sys.argv[1:]:
        main(each)
