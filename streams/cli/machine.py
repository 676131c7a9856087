"""Checks of `trueup doctor` on this machine: Java, jars, disk space, ports, the journal, Spark."""

import json
import pickle
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

from trueup.connectors.embedded import jars as locked
from trueup.connectors.embedded.java import feature_version, java
from trueup.connectors.embedded.kafka import SET as KAFKA_SET
from trueup.connectors.embedded.processes import Port
from trueup.connectors.oidc import Issuer
from trueup.state.common.counts import many
from trueup.state.common.errors import Retry, Stop, TrueupError
from trueup.state.settings.callers import OidcSettings, is_loopback
from trueup.state.settings.settings import HttpSettings, Settings
from trueup.state.settings.spark import S3A_SET
from trueup.streams.journal.channel import client_of
from trueup.streams.journal.signing import keys_of
from trueup.streams.runtime.checks import Check, fail, ok, warn
from trueup.streams.runtime.format import size
from trueup.streams.terminal.client import Api, ApiError, ApiTarget
from trueup.streams.terminal.options import target_of
from trueup.streams.web.access import TokenFile, writable_by_others
from trueup.streams.web.tls import certificate_of

SPARK_SET = "spark-4.3"
LEAST_BYTES, ENOUGH_BYTES = 200 << 20, 2 << 30
SPARK_S = 300.0
JOURNAL_S = 5.0
ASK_S = 2.0
Look = Callable[[], Check | Iterable[Check]]
_SELF_TEST = """
import json, pickle, sys
from trueup.state.common.errors import TrueupError
from trueup.streams.cli.selftest import self_test
try:
    print(self_test(pickle.load(sys.stdin.buffer)))
except TrueupError as error:
    print(json.dumps([error.expected, error.found, error.todo]))
    sys.exit(2)
"""
_TOLD = 2
"""The exit code of a self-test that found a problem and printed it."""


def runtime() -> Check:
    """A Java version that Spark and Kafka support."""
    place = java()
    result = subprocess.run([place, "-version"], capture_output=True, text=True, timeout=60, check=False)
    return ok("java", f"Java {feature_version(result.stdout + result.stderr)} at {place}")


def jars(settings: Settings, progress: Callable[[str], None]) -> Check:
    """The locked jars exist or can be downloaded."""
    jar_sets = [SPARK_SET, *([S3A_SET] if settings.spark.bucket else ())]
    jar_sets += [] if settings.journal.bootstrap else [KAFKA_SET]
    files = [
        path
        for name in jar_sets
        for path in locked.jars(name, lambda done, total: progress(f"downloading jars: {size(done)} of {size(total)}"))
    ]
    total = sum(path.stat().st_size for path in files)
    return ok("jars", f"{many(len(files), 'jar')} of {', '.join(jar_sets)}, {size(total)}, verified")


def room(settings: Settings) -> Check:
    """data_dir is writable and has enough free space."""
    place = Path(settings.data_dir).absolute()
    there = next(parent for parent in (place, *place.parents) if parent.exists())
    probe = there / ".trueup-doctor"
    try:
        probe.touch()
        probe.unlink()
    except OSError as error:
        return fail("data_dir", f"{there}: {error.strerror}", "grant write permission, or set data_dir")
    free = shutil.disk_usage(there).free
    space = f"{place}: {size(free)} free"
    if free < LEAST_BYTES:
        return fail("data_dir", space, f"free at least {size(LEAST_BYTES)}")
    if free < ENOUGH_BYTES:
        return warn("data_dir", space, f"{size(ENOUGH_BYTES)} are recommended for journal and checkpoints")
    return ok("data_dir", space)


def port(settings: Settings) -> Check:
    """http.port is free, or this application uses it."""
    http = settings.http
    try:
        Port(http.host, http.port).release()
    except Retry:
        return _taken(http)
    listens = f"{http.host}:{http.port} is free" if http.port else f"any free port of {http.host}"
    if is_loopback(http.host) or http.tls_certificate:
        return ok("http", listens)
    return warn(
        "http",
        f"{listens}, reachable from other machines without TLS: tokens can be read on the network",
        "set http.tls_certificate and http.tls_key, or use a proxy with TLS",
    )


def _taken(http: HttpSettings) -> Check:
    address = f"{http.host}:{http.port}"
    host = "127.0.0.1" if http.host in ("0.0.0.0", "::") else http.host  # noqa: S104
    # Without TLS any process may have the port, and must not receive a token.
    target = target_of(f"https://{host}:{http.port}") if http.tls_certificate else ApiTarget(f"{host}:{http.port}")
    try:
        status = Api(target, ASK_S).get("status")
    except ApiError as error:
        return warn("http", f"{address} is in use, by a server that expects {error.expected}", error.todo)
    except Retry as error:
        todo = "set http.port, or stop the process that uses it"
        if http.tls_certificate:
            return warn("http", f"{address} is in use, not verified: {error.found}", f"set TRUEUP_CA; or {todo}")
        return fail("http", f"{address} is in use by another process", todo)
    return ok("http", f"Trueup {status['version']} runs on {address}, mode {status['mode']}")


def tokens(settings: Settings) -> Iterator[Check]:
    """The file of tokens is valid, and only its owner can change it; the certificate and its key belong together."""
    http = settings.http
    if not http.tokens_file and settings.oidc.issuer:
        yield ok("tokens", "none: callers have tokens of oidc.issuer")
    elif not http.tokens_file:
        yield ok("tokens", "none: http.tokens_file is not set, and every process of this machine may call the API")
    elif problems := (file := TokenFile(Path(http.tokens_file))).check():
        yield from (
            fail("tokens", problem, "correct the file; `trueup token new` prints a line") for problem in problems
        )
    elif writable_by_others(Path(http.tokens_file)):
        yield fail("tokens", f"other users can change {http.tokens_file}", "remove their write permission")
    else:
        yield ok("tokens", f"{many(len(file.tokens()), 'token')} in {http.tokens_file}")
    yield from _proxies(settings)
    if settings.oidc.issuer:
        yield _provider(settings.oidc)
    if certificate_of(http):
        yield ok("tls", f"{http.tls_certificate} and its key; TLS 1.2 or newer")


def _proxies(settings: Settings) -> Iterator[Check]:
    """Every name of proxy.tokens has a token."""
    if not settings.proxy.tokens:
        return
    names = {token.name for token in TokenFile(Path(settings.http.tokens_file)).tokens()}
    if missing := sorted({*settings.proxy.tokens} - names):
        yield fail(
            "proxy",
            f"no token {', '.join(missing)} in {settings.http.tokens_file}",
            "correct proxy.tokens, or add a line: `trueup token new` prints it",
        )
    else:
        yield ok("proxy", f"{', '.join(settings.proxy.tokens)} name callers in {settings.proxy.user_header}")


def _provider(oidc: OidcSettings) -> Check:
    """The keys of the provider can be read."""
    issuer = Issuer(oidc)
    issuer.read()
    if issuer.problem:
        return fail("oidc", issuer.problem.removeprefix("oidc: "), "correct oidc.issuer, oidc.jwks or oidc.ca")
    return ok("oidc", f"{many(issuer.known, 'key')} of {oidc.issuer}")


def journal(settings: Settings) -> Check:
    """Its keys are valid; brokers respond and are enough. The embedded journal needs only disk space."""
    section = settings.journal
    keys_of(section.key_file)
    if not section.bootstrap:
        return ok("journal", "embedded, in data_dir")
    from trueup.connectors.kafka.journal.topics import TopicClient

    try:
        brokers = TopicClient(section.bootstrap, client_of(section)).brokers(JOURNAL_S)
    except TrueupError as error:
        todo = error.todo if isinstance(error, Stop) else "start the brokers, or correct journal.bootstrap"
        return fail("journal", f"{section.bootstrap}: {error.found}", todo)
    summary = f"{many(brokers, 'broker')} at {section.bootstrap}"
    if brokers < section.replication:
        return fail("journal", summary, f"journal.replication is {section.replication}: add brokers or lower it")
    if brokers > 1 and section.replication < 2:
        return warn("journal", summary, "journal.replication is 1: a lost broker loses topics; set 3")
    return _records(settings, summary)


def _records(settings: Settings, summary: str) -> Check:
    """The records of the journal are readable, as far as they can be read in a short time."""
    from trueup.streams.journal import repair
    from trueup.streams.journal.journal import Journal

    section = settings.journal
    try:
        bad, whole = repair.find(Journal(section.bootstrap, section, settings.cluster.name), JOURNAL_S)
    except TrueupError as error:
        return warn("journal", f"{summary}; records not read: {error.found}", error.todo)
    if bad:
        first = f"{many(len(bad), 'record')} not readable, the first: {bad[0].problem}"
        return warn("journal", f"{summary}; {first}", "stop Trueup and run `trueup journal repair`")
    return ok("journal", summary if whole else f"{summary}; not all records were read within {JOURNAL_S:.0f} s")


def spark(settings: Settings) -> Check:
    """Spark, its jars and Trueup's operator work together, tested in a separate process."""
    from trueup.streams.runtime.spark.cluster import reach

    reach(settings.spark.master)
    try:
        done = subprocess.run(
            [sys.executable, "-c", _SELF_TEST],
            input=pickle.dumps(settings),
            capture_output=True,
            timeout=SPARK_S,
            check=False,
        )
    except subprocess.TimeoutExpired:
        return fail("spark", f"no result within {SPARK_S:.0f} s", "check that spark.master responds and has free cores")
    if done.returncode == 0:
        return ok("spark", done.stdout.decode().strip())
    if done.returncode == _TOLD:
        expected, found, todo = json.loads(done.stdout.splitlines()[-1])
        return fail("spark", f"expected {expected}; found {found}", todo)
    return fail(
        "spark", _last_error(done.stderr.decode(errors="replace")), "check the row java, and spark.* in the settings"
    )


def _last_error(text: str) -> str:
    lines = [line.strip() for line in text.splitlines() if line.strip() and not line.startswith((" ", "\t"))]
    return lines[-1][:300] if lines else "no output"


def all_of(
    settings: Settings, progress: Callable[[str], None]
) -> Iterator[tuple[str, Callable[[], Check | Iterable[Check]]]]:
    """The checks of this module by name, without Spark's."""
    yield "java", runtime
    yield "jars", lambda: jars(settings, progress)
    yield "data_dir", lambda: room(settings)
    yield "http", lambda: port(settings)
    yield "tokens", lambda: tokens(settings)
    yield "journal", lambda: journal(settings)
