"""A real object store on loopback: listings, confirmed deletions, and errors that state the remedy."""

import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from tests.certificates import certify
from tests.objects import client_of
from trueup.connectors.embedded.processes import free_port
from trueup.connectors.s3 import store as module
from trueup.connectors.s3.store import BucketLocation, Object, ObjectStore, Upload
from trueup.sandbox.servers.objects import REGION, Objects
from trueup.state.common.errors import Retry, Stop, TrueupError, Unknown
from trueup.state.deletion.offloads import ObjectPair
from trueup.state.deletion.stores import STORES
from trueup.state.deletion.stores import StoreSettings as Declared
from trueup.state.settings.settings import Settings
from trueup.streams.deletion import checks
from trueup.streams.runtime.checks import Check

pytestmark = pytest.mark.servers
SECRETS = {"OUR_KEY": "the-key-id", "OUR_SECRET": "the-very-secret"}


@pytest.fixture(scope="module")
def objects(new_root: Callable[[], Path]) -> Iterator[Objects]:
    with Objects(new_root()) as server:
        server.up()
        yield server


@pytest.fixture
def store(objects: Objects, request: pytest.FixtureRequest) -> ObjectStore:
    """An empty bucket."""
    name = "".join(c if c.isalnum() else "-" for c in request.node.name.replace("test_", ""))[:60].strip("-").lower()
    objects.bucket(name)
    return ObjectStore(BucketLocation(name, REGION, objects.endpoint, "OUR_KEY", "OUR_SECRET"), SECRETS)


def raw(store: ObjectStore) -> Any:
    """A second client, in the role of a broker."""
    return client_of(store.place.endpoint)


def put(store: ObjectStore, key: str, content: bytes = b"x", **metadata: str) -> None:
    raw(store).put_object(Bucket=store.place.bucket, Key=key, Body=content, Metadata=metadata)


def begun(store: ObjectStore, key: str) -> str:
    client, where = raw(store), {"Bucket": store.place.bucket, "Key": key}
    made = client.create_multipart_upload(**where)["UploadId"]
    client.upload_part(**where, UploadId=made, PartNumber=1, Body=bytes(1_000))
    return str(made)


def names(store: ObjectStore) -> list[str]:
    return [found.key for page in store.objects() for found in page]


def test_every_object_is_listed_over_all_pages(store: ObjectStore) -> None:
    wanted = [f"key-{n:04}" for n in range(1_005)]
    for key in wanted:
        put(store, key, key.encode())
    pages = list(store.objects())
    assert (len(pages), [o.key for page in pages for o in page], pages[0][0].size) == (2, wanted, 8)


def test_an_empty_bucket_has_nothing(store: ObjectStore) -> None:
    assert (names(store), [u for page in store.uploads() for u in page]) == ([], [])


def test_an_object_is_read_with_its_metadata(store: ObjectStore) -> None:
    put(store, "a", b"abc", ManagedLedgerName="t/ns/persistent/a")
    head = store.head("a")
    assert head is not None
    assert (head.size, head.metadata) == (3, {"managedledgername": "t/ns/persistent/a"})


def test_a_missing_object_is_reported(store: ObjectStore) -> None:
    assert store.head("a") is None


def test_ranges_are_read(store: ObjectStore) -> None:
    put(store, "a", bytes(range(100)))
    head = store.head("a")
    assert head is not None
    assert (store.read("a", 10, 5, head.tag), store.read("a", 98, 50, head.tag)) == (bytes(range(10, 15)), b"\x62\x63")


def test_a_first_range_has_what_further_ones_need(store: ObjectStore) -> None:
    put(store, "a", bytes(range(100)))
    begun = store.begin("a", 90, 50)
    assert begun is not None
    assert (begun.content, begun.size, store.read("a", 0, 1, begun.tag)) == (bytes(range(90, 100)), 100, b"\0")
    put(store, "a", b"abd")
    with pytest.raises(Stop, match="overwritten"):
        store.read("a", 0, 3, begun.tag)


def test_a_first_range_of_a_missing_or_shorter_object_is_reported(store: ObjectStore) -> None:
    put(store, "a", b"abc")
    assert store.begin("b", 0, 3) is None
    with pytest.raises(Stop, match="the end of the object"):
        store.begin("a", 3, 1)


def test_an_object_that_was_written_anew_is_not_read_on(store: ObjectStore) -> None:
    put(store, "a", b"abc")
    head = store.head("a")
    assert head is not None
    put(store, "a", b"abd")
    with pytest.raises(Stop, match="overwritten"):
        store.read("a", 0, 3, head.tag)


def test_an_object_that_went_meanwhile_is_not_read_on(store: ObjectStore) -> None:
    with pytest.raises(Stop, match="deleted meanwhile"):
        store.read("a", 0, 3, '"tag"')


def test_what_is_deleted_is_gone_and_nothing_else(store: ObjectStore) -> None:
    for key in "abc":
        put(store, key)
    assert (store.delete(["a", "b", "never"]), names(store)) == ([], ["c"])


def test_incomplete_uploads_are_listed_and_aborted(store: ObjectStore) -> None:
    made = {key: begun(store, key) for key in ("a", "b")}
    found = [upload for page in store.uploads() for upload in page]
    assert {upload.key: upload.id for upload in found} == made
    assert store.parts(found[0]) == [1_000]
    assert store.abort(found[0])
    assert [upload.key for page in store.uploads() for upload in page] == [found[1].key]


def test_an_upload_that_is_gone_is_given_up(store: ObjectStore) -> None:
    assert store.abort(Upload("a", "never", 0))


def test_a_missing_bucket_needs_an_operator(objects: Objects) -> None:
    missing = ObjectStore(BucketLocation("missing", REGION, objects.endpoint, "OUR_KEY", "OUR_SECRET"), SECRETS)
    with pytest.raises(Stop, match="NoSuchBucket"):
        names(missing)


@pytest.mark.parametrize(("call", "kind"), [(lambda s: s.head("a"), Retry), (lambda s: s.delete(["a"]), Unknown)])
def test_a_store_that_does_not_answer_is_asked_again_and_a_deletion_is_doubted(
    call: Callable[[ObjectStore], object], kind: type[TrueupError]
) -> None:
    nobody = ObjectStore(
        BucketLocation("b", REGION, f"http://127.0.0.1:{free_port()}", "OUR_KEY", "OUR_SECRET"), SECRETS
    )
    with pytest.raises(kind):
        call(nobody)


class Answering(BaseHTTPRequestHandler):
    """Sends the same error to every request, with the request's credentials in the message."""

    status, code = 503, "SlowDown"

    def answer(self) -> None:
        result = self.headers["Authorization"]
        text = f"<Error><Code>{self.code}</Code><Message>{result}</Message></Error>".encode()
        self.send_response(self.status)
        self.send_header("Content-Length", str(len(text)))
        self.end_headers()
        self.wfile.write(text)

    do_GET = do_POST = answer  # noqa: N815

    def log_message(self, *_: object) -> None:
        pass


@pytest.mark.parametrize(
    ("status", "code", "kind"),
    [
        (503, "SlowDown", Retry),
        (500, "InternalError", Retry),
        (403, "AccessDenied", Stop),
        (403, "InvalidAccessKeyId", Stop),
        (403, "SignatureDoesNotMatch", Stop),
    ],
)
def test_a_refusal_of_a_store_shows_its_code_and_no_secret(
    status: int, code: str, kind: type[TrueupError], caplog: pytest.LogCaptureFixture
) -> None:
    handler = type("Handler", (Answering,), {"status": status, "code": code})
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        place = BucketLocation("b", REGION, f"http://127.0.0.1:{server.server_port}", "OUR_KEY", "OUR_SECRET")
        with caplog.at_level("INFO"), pytest.raises(kind, match=code) as reported:
            names(ObjectStore(place, SECRETS))
        server.shutdown()
        thread.join()
    shown = f"{reported.value}{reported.value.__cause__}{place!r}{caplog.text}"
    assert not [secret for secret in SECRETS.values() if secret in shown]


def test_a_missing_credential_is_reported_by_its_name() -> None:
    with pytest.raises(Stop, match="variable OUR_SECRET"):
        ObjectStore(BucketLocation("b", REGION, "http://127.0.0.1:1", "OUR_KEY", "OUR_SECRET"), {"OUR_KEY": "x"}).head(
            "a"
        )


def test_an_invalid_address_is_reported() -> None:
    with pytest.raises(Stop, match="endpoint"):
        ObjectStore(BucketLocation("b", REGION, "nowhere", "OUR_KEY", "OUR_SECRET"), SECRETS).head("a")


def test_deletions_go_in_portions(store: ObjectStore, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "TOGETHER", 2)
    for key in "abcde":
        put(store, key)
    assert (store.delete(list("abcde")), names(store)) == ([], [])


def test_a_listing_has_sizes_and_times(store: ObjectStore) -> None:
    put(store, "a", bytes(7))
    ((found,),) = store.objects()
    head = store.head("a")
    assert head is not None
    assert found == Object("a", 7, head.modified_ms)


@pytest.mark.parametrize(("cluster", "status"), [("lab", "ok"), ("", "warn")])
def test_doctor_shows_the_contents_of_a_store(
    store: ObjectStore, monkeypatch: pytest.MonkeyPatch, cluster: str, status: str
) -> None:
    for variable, value in SECRETS.items():
        monkeypatch.setenv(variable, value)
    for key in (PAIR.data_key, PAIR.index_key, "else"):
        put(store, key)
    begun(store, "a")
    (check,) = checks.all_of(settings(store, cluster))
    found = f"{store.place}: of the first 3 objects 2 are of ledgers; 1 upload not completed"
    assert (check.name, check.status, check.found.startswith(found)) == ("stores.archive", status, True), check


def test_doctor_shows_why_a_store_cannot_be_listed(store: ObjectStore) -> None:
    (check,) = checks.all_of(settings(store, "lab"))
    assert (check.status, "variable OUR_KEY" in check.found) == ("fail", True), check


PAIR = ObjectPair("01234567-89ab-cdef-0123-456789abcdef", 5)


def settings(store: ObjectStore, cluster: str) -> Settings:
    place = store.place
    declared = Declared(place.bucket, place.region, place.endpoint, place.key_env, place.secret_env, cluster=cluster)
    return Settings(sections={STORES: {"archive": declared}})


@pytest.fixture(scope="module")
def secured(new_root: Callable[[], Path]) -> Iterator[tuple[Objects, Path]]:
    """A server with a certificate of its own, and that certificate."""
    certificate, key = certify(new_root())
    with Objects(new_root(), buckets=["kept"], tls=(certificate, key)) as server:
        server.up()
        yield server, certificate


def check_of(server: Objects, ca: str) -> Check:
    """The row of the doctor."""
    declared = Declared("kept", REGION, server.endpoint, "OUR_KEY", "OUR_SECRET", ca, "lab")
    with pytest.MonkeyPatch.context() as environment:
        for name, value in SECRETS.items():
            environment.setenv(name, value)
        (row,) = checks.all_of(Settings(sections={STORES: {"archive": declared}}))
    return row


def test_a_private_authority_is_trusted(secured: tuple[Objects, Path]) -> None:
    server, certificate = secured
    assert check_of(server, str(certificate)).status == "ok"


def test_the_doctor_names_the_key_of_an_authority_that_is_missing(secured: tuple[Objects, Path]) -> None:
    row = check_of(secured[0], "")
    assert (row.status, row.todo.startswith("correct ca of this store")) == ("fail", True), row


def test_the_doctor_names_a_file_that_is_no_certificate(secured: tuple[Objects, Path], tmp_path: Path) -> None:
    (tmp_path / "ca.pem").write_text("nothing")
    row = check_of(secured[0], str(tmp_path / "ca.pem"))
    assert (row.status, row.todo) == ("fail", "correct ca of this store"), row
