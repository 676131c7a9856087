"""Rack maps resolve racks as BookKeeper's placement policy does."""

import socket
from collections.abc import Callable, Sequence
from pathlib import Path

import psutil
import pytest

from trueup.connectors.bookkeeper.metadata.rack_source import AGAIN_MS, RackHealth, RackSource
from trueup.connectors.bookkeeper.metadata.racks import (
    PulsarRacks,
    RackMap,
    Script,
    StaticRacks,
    Unmapped,
    address_of,
    host_of,
    normal,
    racks_of,
)
from trueup.connectors.embedded.processes import wait_until
from trueup.state.bookkeeper.topology import UNKNOWN_RACK
from trueup.state.common.errors import BadBytes, BadSettings

BOOKIES = ["127.0.0.1:3181", "127.0.0.2:3181"]


@pytest.mark.parametrize(
    ("location", "seen"),
    [
        (None, None),
        ("/r1", "/r1"),
        ("/r1/", "/r1"),
        ("/r1//", "/r1/"),
        ("/dc/r1", "/dc/r1"),
        ("", ""),
        ("/", ""),
        ("r1", ""),
        ("r1/", ""),
    ],
)
def test_locations_are_normalised(location: str | None, seen: str | None) -> None:
    assert normal(location) == seen


@pytest.mark.parametrize(
    ("bookie", "hosts", "host"),
    [
        ("10.0.0.1:3181", {}, "10.0.0.1"),
        ("bk-1", {}, "bk-1"),
        ("bk-1", {"bk-1": "10.0.0.9"}, "10.0.0.9"),
        ("10.0.0.1:3181", {"10.0.0.1:3181": "bk-1.example.org"}, "bk-1.example.org"),
        ("[::1]:3181", {}, "::1"),
        ("a:b", {}, "a:b"),
    ],
)
def test_the_published_host_goes_before_that_in_the_id(bookie: str, hosts: dict[str, str], host: str) -> None:
    assert host_of(bookie, hosts) == host


@pytest.mark.parametrize(
    ("host", "address"), [("127.0.0.7", "127.0.0.7"), ("::1", "0:0:0:0:0:0:0:1"), ("no such host", None)]
)
def test_addresses_are_written_as_java_writes_them(host: str, address: str | None) -> None:
    assert address_of(host) == address


def test_without_a_map_nothing_is_known() -> None:
    assert Unmapped().resolve(BOOKIES) == dict.fromkeys(BOOKIES)


def test_a_table_knows_ids_hosts_and_addresses() -> None:
    table = StaticRacks({"127.0.0.1:3181": "/a", "127.0.0.2": "/b/", "bk": "c", "127.0.0.9": "/d"})
    reported = table.resolve([*BOOKIES, "bk", "other", "bk-9"], {"bk-9": "127.0.0.9"})
    assert list(reported.values()) == ["/a", "/b", "", None, "/d"]


def script(tmp_path: Path, body: str) -> Path:
    path = tmp_path / "racks.sh"
    path.write_text(f'#!/bin/sh\necho "$*" >> {tmp_path}/calls\n{body}\n')
    path.chmod(0o755)
    return path


PER_ADDRESS = 'for a in "$@"; do case $a in 127.0.0.9) exit 3;; 127.0.0.2) echo /r2/;; *) echo /r1;; esac; done'


def calls(tmp_path: Path) -> list[str]:
    return (tmp_path / "calls").read_text().splitlines()


def test_a_script_is_asked_by_address(tmp_path: Path) -> None:
    racks = Script(script(tmp_path, PER_ADDRESS))
    reported = racks.resolve([*BOOKIES, "bk"], {"bk": "127.0.0.2"})
    assert (reported, calls(tmp_path)) == (
        {"127.0.0.1:3181": "/r1", "127.0.0.2:3181": "/r2", "bk": "/r2"},
        ["", "127.0.0.1 127.0.0.2"],
    )


def test_a_script_is_asked_once(tmp_path: Path) -> None:
    racks = Script(script(tmp_path, PER_ADDRESS))
    racks.resolve(BOOKIES)
    racks.resolve(BOOKIES)
    assert calls(tmp_path) == ["", "127.0.0.1 127.0.0.2"]


def test_a_script_gets_a_hundred_addresses_at_most(tmp_path: Path) -> None:
    racks = Script(script(tmp_path, PER_ADDRESS))
    racks.resolve([f"127.0.1.{n}:3181" for n in range(150)])
    assert [len(call.split()) for call in calls(tmp_path)] == [0, 100, 50]


def test_one_address_that_a_script_fails_on_does_not_take_others_along(tmp_path: Path) -> None:
    racks = Script(script(tmp_path, PER_ADDRESS))
    reported = racks.resolve([*BOOKIES, "127.0.0.9:3181"])
    assert list(reported.values()) == ["/r1", "/r2", None]


def test_a_script_that_fails_later_keeps_its_last_racks(tmp_path: Path) -> None:
    racks = Script(script(tmp_path, f"[ -e {tmp_path}/broken ] && exit 1; {PER_ADDRESS}"))
    before = racks.resolve(BOOKIES)
    (tmp_path / "broken").touch()
    assert racks.resolve(BOOKIES) == before


def test_a_script_with_the_wrong_number_of_words_gives_no_racks(tmp_path: Path) -> None:
    assert Script(script(tmp_path, "echo /r1 /r2 /r3")).resolve(BOOKIES) == dict.fromkeys(BOOKIES)


@pytest.mark.parametrize(
    ("body", "problem"),
    [
        ("exit 3", "exit code 3"),
        ("echo /r1 /r2 /r3", "3 words"),
        ('for a in "$@"; do echo rack; done', "'rack'"),
        ("head -c 2000000 /dev/zero | tr '\\0' x", "more than 1048576 bytes of output"),
    ],
)
def test_problems_of_a_script_are_reported(tmp_path: Path, body: str, problem: str) -> None:
    racks = Script(script(tmp_path, f"[ $# = 0 ] || {{ {body}; }}"))
    found, reported = racks.locations(["127.0.0.1", "127.0.0.2"])
    assert (found, problem in reported) == ({}, True)


def _ended(pid: int) -> bool:
    try:
        return psutil.Process(pid).status() == psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return True


def test_a_script_that_hangs_is_ended_with_all_that_it_started_and_asked_once(tmp_path: Path) -> None:
    body = f"[ $# = 0 ] || {{ sleep 600 & echo $! > {tmp_path}/child; wait; }}"
    racks = Script(script(tmp_path, body), most=2, limit_s=0.2)
    reported = racks.locations([f"127.0.0.{number}" for number in range(1, 9)])
    child = int((tmp_path / "child").read_text())
    wait_until(lambda: _ended(child), 180.0, "the end of what the script started")
    assert (reported, len(calls(tmp_path))) == (({}, "a time-out after 0.2 s"), 2)


@pytest.mark.parametrize("body", ["exit 1", "kill -9 $$"])
def test_a_script_must_exit_with_0_without_arguments(tmp_path: Path, body: str) -> None:
    with pytest.raises(BadSettings):
        Script(script(tmp_path, body))


def test_a_script_must_exist(tmp_path: Path) -> None:
    with pytest.raises(BadSettings):
        Script(tmp_path / "none")


PULSAR = b"""{"default": {"127.0.0.1:3181": {"rack": "r1", "hostname": "a"}, "bk-2:3181": {"rack": "/r2"}},
              "other": {"127.0.0.3:3181": {"rack": "/"}, "127.0.0.4:3181": {"rack": ""}, "127.0.0.5:3181": {}}}"""


def test_pulsars_znode_is_known_by_id_and_host() -> None:
    racks = PulsarRacks()
    racks.load(PULSAR)
    reported = racks.resolve(
        ["127.0.0.1:3181", "x", "127.0.0.3:3181", "127.0.0.4:3181", "127.0.0.5:3181", "other:1"], {"x": "bk-2"}
    )
    assert list(reported.values()) == ["/r1", "/r2", None, None, None, None]


def test_a_bookie_is_in_the_groups_of_pulsars_znode_that_list_its_id() -> None:
    racks = PulsarRacks()
    assert racks.groups("127.0.0.1:3181") is None
    racks.load(b'{"a": {"b:1": {}, "c:1": {}}, "b": {"b:1": {}}}')
    assert [racks.groups(bookie) for bookie in ("b:1", "c:1", "c", "d:1")] == [("a", "b"), ("a",), (), ()]


DEEP = [b"[" * 200_000, b'{"g":' * 200_000]


@pytest.mark.parametrize(
    "data", [b"{", b"[]", b'{"g": []}', b'{"g": {"b:1": 5}}', b'{"g": {"b:1": {"rack": 5}}}', b"9" * 4_301, *DEEP]
)
def test_a_damaged_pulsar_znode_leaves_the_racks_as_they_were(data: bytes) -> None:
    racks = PulsarRacks()
    racks.load(PULSAR)
    with pytest.raises(BadBytes):
        racks.load(data)
    assert racks.resolve(["127.0.0.1:3181"]) == {"127.0.0.1:3181": "/r1"}


def test_a_missing_pulsar_znode_maps_nothing() -> None:
    racks = PulsarRacks()
    racks.load(PULSAR)
    racks.load(None)
    assert racks.resolve(BOOKIES) == dict.fromkeys(BOOKIES)


def test_until_pulsars_znode_was_read_no_rack_is_known() -> None:
    assert PulsarRacks().resolve(BOOKIES) == dict.fromkeys(BOOKIES, UNKNOWN_RACK)


PULSARS = PulsarRacks()
PULSARS.load(b'{"g": {"b:1": {"rack": "/r1"}}}')


@pytest.mark.parametrize(
    ("racks", "expected"),
    [
        (Unmapped(), None),
        (StaticRacks({"b:1": "/r1"}), "/r1"),
        (StaticRacks({"b": "/r1"}), UNKNOWN_RACK),
        (PULSARS, "/r1"),
        (PulsarRacks(), UNKNOWN_RACK),
    ],
)
def test_a_rack_that_depends_on_a_host_that_may_not_be_read_is_unknown(racks: RackMap, expected: str | None) -> None:
    assert racks_of(racks, ["b:1"], {}, {"b:1"}) == {"b:1": expected}


def test_scripts_do_not_receive_a_host_that_may_not_be_read(tmp_path: Path) -> None:
    racks = Script(script(tmp_path, PER_ADDRESS))
    assert racks_of(racks, ["127.0.0.1:1", "127.0.0.2:1"], {}, {"127.0.0.2:1"}) == {
        "127.0.0.1:1": "/r1",
        "127.0.0.2:1": UNKNOWN_RACK,
    }


def test_a_host_that_was_read_before_stays_in_force() -> None:
    assert racks_of(StaticRacks({"h": "/r1"}), ["b:1"], {"b:1": "h"}, {"b:1"}) == {"b:1": "/r1"}


class Asked:
    """A rack source with a script that can be made to fail, and a manual clock."""

    def __init__(self, tmp_path: Path) -> None:
        self.now_ms, self.changes, self.broken = 1_000, 0, tmp_path / "broken"
        body = f"[ $# = 0 ] || [ ! -e {self.broken} ] || exit 7; {PER_ADDRESS}"
        self.source = RackSource(Script(script(tmp_path, body)), 300_000, self.changed, lambda: self.now_ms)

    def changed(self) -> None:
        self.changes += 1


def test_a_source_returns_at_once_and_reports_the_result_later(tmp_path: Path) -> None:
    asked = Asked(tmp_path)
    before = asked.source.resolve(BOOKIES)
    asked.source.ask(0.0)
    assert (before, asked.source.resolve(BOOKIES), asked.changes) == (
        dict.fromkeys(BOOKIES, UNKNOWN_RACK),
        {"127.0.0.1:3181": "/r1", "127.0.0.2:3181": "/r2"},
        1,
    )


def test_the_last_racks_of_a_source_stay_in_force_and_their_age_is_reported(tmp_path: Path) -> None:
    asked = Asked(tmp_path)
    asked.source.resolve(BOOKIES)
    asked.source.ask(0.0)
    asked.broken.touch()
    asked.now_ms += 300_000
    asked.source.ask(0.0)
    held = asked.source.resolve(BOOKIES)
    assert (list(held.values()), asked.source.health()) == (["/r1", "/r2"], RackHealth(1_000, "exit code 7", 0, 2))


def test_a_source_that_failed_is_asked_again_soon(tmp_path: Path) -> None:
    asked = Asked(tmp_path)
    asked.broken.touch()
    asked.source.resolve(BOOKIES)
    asked.source.ask(0.0)
    before = asked.source.health()
    asked.broken.unlink()
    asked.now_ms += AGAIN_MS
    asked.source.ask(0.0)
    assert (before, asked.source.health().problem) == (RackHealth(0, "exit code 7", 2, 2), "")


def test_a_source_is_asked_for_a_new_bookie_at_once(tmp_path: Path) -> None:
    asked = Asked(tmp_path)
    asked.source.resolve(BOOKIES)
    asked.source.ask(0.0)
    asked.source.resolve([*BOOKIES, "127.0.0.3:3181"])
    asked.source.ask(0.0)
    assert asked.source.health().unknown == 0


class Slow(Script):
    """A script during whose first run something happens."""

    def __init__(self, path: Path) -> None:
        super().__init__(path)
        self.during: Callable[[], object] | None = None

    def locations(self, hosts: Sequence[str]) -> tuple[dict[str, str], str]:
        during, self.during = self.during, None
        if during is not None:
            during()
        return super().locations(hosts)


def test_a_source_is_asked_at_once_for_a_bookie_that_registers_while_the_script_runs(tmp_path: Path) -> None:
    slow = Slow(script(tmp_path, PER_ADDRESS))
    source = RackSource(slow, 300_000, lambda: None, lambda: 1_000)
    source.resolve(BOOKIES[:1])
    slow.during = lambda: source.resolve(BOOKIES)
    source.ask(0.0)
    source.ask(0.0)
    assert list(source.resolve(BOOKIES).values()) == ["/r1", "/r2"]


class Names:
    """Name resolution of the hosts bk-1 and bk-2, which can fail."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.addresses = {"bk-1": "127.0.0.1", "bk-2": "127.0.0.2"}
        monkeypatch.setattr(socket, "getaddrinfo", self.find)

    def find(self, host: str, *_: object, **__: object) -> list[tuple[object, ...]]:
        if host not in self.addresses:
            raise socket.gaierror(socket.EAI_AGAIN, "Temporary failure in name resolution")
        return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", (self.addresses[host], 0))]


@pytest.fixture
def names(monkeypatch: pytest.MonkeyPatch) -> Names:
    return Names(monkeypatch)


NAMED = ["bk-1:3181", "bk-2:3181"]


def test_a_host_whose_lookup_fails_keeps_its_address(tmp_path: Path, names: Names) -> None:
    asked = Asked(tmp_path)
    asked.source.resolve(NAMED)
    asked.source.ask(0.0)
    del names.addresses["bk-2"]
    asked.now_ms += 300_000
    asked.source.ask(0.0)
    assert list(asked.source.resolve(NAMED).values()) == ["/r1", "/r2"]


def test_a_host_that_never_had_an_address_is_asked_by_its_name(tmp_path: Path, names: Names) -> None:
    names.addresses.clear()
    asked = Script(script(tmp_path, 'for a in "$@"; do echo "/of-$a"; done'))
    assert list(asked.resolve(NAMED).values()) == ["/of-bk-1", "/of-bk-2"]


def test_a_table_keeps_the_rack_of_a_host_without_an_address(names: Names) -> None:
    table = StaticRacks({"127.0.0.1": "/r1", "127.0.0.2": "/r2"})
    before = table.resolve(NAMED)
    names.addresses.clear()
    assert (before, table.resolve(NAMED)) == ({"bk-1:3181": "/r1", "bk-2:3181": "/r2"}, before)
