import hashlib
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from xml.etree import ElementTree

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trueup.connectors.embedded import jars
from trueup.connectors.embedded.jars import Jar, fetch, lock_text, parse, sets, verify
from trueup.connectors.embedded.relock import lines, pom
from trueup.state.common.errors import BadBytes, Retry, Stop

CONTENT = b"a jar, as far as a digest is concerned" * 100
GOOD = Jar(hashlib.sha256(CONTENT).hexdigest(), len(CONTENT), "org.example", "thing", "1.0", "linux-x86_64")
PATH = "/org/example/thing/1.0/thing-1.0-linux-x86_64.jar"
VERSIONS = Path(__file__).parents[2] / "versions" / "locks"
WORD = st.from_regex(r"[A-Za-z0-9_.-]+", fullmatch=True)


@dataclass
class Repository:
    url: str = ""
    answers: list[tuple[int, bytes]] = field(default_factory=list)
    asked: list[str] = field(default_factory=list)


@pytest.fixture
def repository(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Repository]:
    """A Maven repository over HTTP; its last response repeats."""
    state = Repository()

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            code, body = 404, b""
            if not self.path.endswith(".sha1"):
                state.asked.append(self.path)
                code, body = state.answers.pop(0) if len(state.answers) > 1 else state.answers[0]
            self.send_response(code)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *args: object) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        state.url = f"http://127.0.0.1:{server.server_address[1]}/"
        monkeypatch.setenv("TRUEUP_MAVEN", state.url)
        monkeypatch.setenv("TRUEUP_CACHE", str(tmp_path))
        yield state
        server.shutdown()
        thread.join()


@pytest.mark.parametrize("name", sets())
def test_a_lock_names_each_jar_once(name: str) -> None:
    found = [jar.coordinates for jar in parse(lock_text(name), name)]
    assert len(set(found)) == len(found) > 0


@given(WORD, WORD, WORD, WORD | st.just(""), st.binary(min_size=32, max_size=32), st.integers(0))
def test_a_line_of_a_lock_reads_back(
    group: str, artifact: str, version: str, classifier: str, sha256: bytes, size: int
) -> None:
    jar = Jar(sha256.hex(), size, group, artifact, version, classifier)
    assert parse(f"{jar.sha256} {jar.size} {jar.coordinates}\n", "x.lock") == [jar]


@pytest.mark.parametrize(
    "line", ["x", "abc 12 g:a:v", f"{GOOD.sha256} -1 g:a:v", f"{GOOD.sha256} 1 g:a", f"{GOOD.sha256} 1 g::v"]
)
def test_a_bad_line_is_named_with_its_place(line: str) -> None:
    first = f"{GOOD.sha256} 1 g:a:v\n"
    with pytest.raises(BadBytes) as refusal:
        parse(first + line, "x.lock")
    assert (refusal.value.where, refusal.value.at) == ("x.lock", len(first))


def test_an_unknown_set_is_refused_with_the_known_ones() -> None:
    with pytest.raises(Stop, match="kafka"):
        lock_text("../kafka")


def test_a_set_of_an_added_folder_is_found_and_is_none_of_the_products(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(jars, "_added", [])
    (tmp_path / "old-1.lock").write_text("# root g:a:1\n")
    jars.add_locks(tmp_path)
    assert (lock_text("old-1"), "old-1" in sets()) == ("# root g:a:1\n", False)


@pytest.mark.parametrize("name", sorted(path.stem for path in VERSIONS.glob("*.lock")))
def test_the_lock_of_a_version_has_its_roots_and_each_jar_once(name: str) -> None:
    text = (VERSIONS / f"{name}.lock").read_text()
    found = [jar.coordinates for jar in parse(text, name)]
    roots = {line.split()[2] for line in text.splitlines() if line.startswith("# root")}
    assert (roots - set(found), len(found)) == (set(), len(set(found)))


def test_other_bytes_of_the_same_size_are_refused(tmp_path: Path) -> None:
    (tmp_path / "jar").write_bytes(CONTENT[::-1])
    with pytest.raises(Stop, match=GOOD.coordinates):
        verify(GOOD, tmp_path / "jar")


def test_a_short_file_is_worth_another_try(tmp_path: Path) -> None:
    (tmp_path / "jar").write_bytes(CONTENT[:-1])
    with pytest.raises(Retry):
        verify(GOOD, tmp_path / "jar")


def test_a_jar_is_fetched_by_its_coordinates(repository: Repository) -> None:
    repository.answers = [(200, CONTENT)]
    (got,) = fetch([GOOD])
    assert (got.read_bytes(), repository.asked) == (CONTENT, [PATH])


def test_a_cached_jar_is_not_asked_for_again(repository: Repository) -> None:
    repository.answers = [(200, CONTENT)]
    assert fetch([GOOD]) == fetch([GOOD])
    assert len(repository.asked) == 1


def test_a_jar_that_is_not_the_locked_one_is_never_kept(repository: Repository, tmp_path: Path) -> None:
    repository.answers = [(200, CONTENT[::-1])]
    with pytest.raises(Stop, match=GOOD.coordinates):
        fetch([GOOD])
    assert not list(tmp_path.rglob("*.jar"))


def test_a_failing_repository_is_asked_again(repository: Repository) -> None:
    repository.answers = [(503, b""), (200, CONTENT)]
    assert fetch([GOOD])[0].read_bytes() == CONTENT


def test_two_at_once_fetch_a_jar_once(repository: Repository) -> None:
    repository.answers = [(200, CONTENT)]
    with ThreadPoolExecutor(2) as pool:
        both = [done.result() for done in [pool.submit(fetch, [GOOD]) for _ in range(2)]]
    assert both[0] == both[1]
    assert len(repository.asked) == 1


def test_progress_ends_with_all_bytes_done(repository: Repository) -> None:
    repository.answers = [(503, b""), (200, CONTENT)]
    reported: list[tuple[int, int]] = []
    fetch([GOOD], lambda done, total: reported.append((done, total)))
    assert reported[-1] == (GOOD.size, GOOD.size)


@pytest.mark.parametrize("name", sets())
def test_every_root_of_a_lock_is_in_it(name: str) -> None:
    roots = {line.split()[2] for line in lock_text(name).splitlines() if line.startswith(("# root", "# only"))}
    assert set() < roots <= {jar.coordinates for jar in parse(lock_text(name), name)}


def test_a_lock_is_made_from_files_laid_out_as_maven_does(tmp_path: Path) -> None:
    place = tmp_path / PATH.removeprefix("/")
    place.parent.mkdir(parents=True)
    place.write_bytes(CONTENT)
    assert parse(lines(tmp_path), "x.lock") == [GOOD]


def test_maven_is_asked_for_the_roots() -> None:
    asked = ElementTree.fromstring(pom("# root g:a:1\n# only h:b:2\n"))
    found = [element.text for element in asked.iter() if element.tag.endswith(("artifactId", "version"))]
    assert found == ["relock", "1", "a", "1", "b", "2", "*"]


def test_versions_are_imported_and_jars_left_out_of_every_root() -> None:
    asked = ElementTree.fromstring(pom("# import v:bom:9\n# without h:b\n# root g:a:1\n"))
    assert [element.text for element in asked.iterfind("dependencyManagement/*/*/*")][:5] == [
        "v",
        "bom",
        "9",
        "pom",
        "import",
    ]
    assert [element.text for element in asked.iterfind("dependencies//exclusion/*")] == ["h", "b"]
