"""Responses to requests for objects that are not S3's: those of a proxy or of another web server."""

import io
from collections.abc import Callable, Mapping
from typing import Any

import pytest
from botocore.awsrequest import AWSRequest, AWSResponse

from trueup.connectors.s3.store import BucketLocation, NoAccess, ObjectStore, Upload

BUCKET, KEY = "pulsar-offloaded", "k"
PROXY = (404, b"404 page not found\n")
PAGE = (200, b"<html><body>hello</body></html>")
ABSENT = (404, b"<Error><Code>NoSuchKey</Code></Error>")
Answer = tuple[int, bytes]


class Body(io.BytesIO):
    """The bytes of a response, as urllib3 hands them over."""

    def stream(self, **_: Any) -> Any:
        yield self.read()


def listing(bucket: str = BUCKET) -> Answer:
    """A listing without objects."""
    return 200, f"<ListBucketResult><Name>{bucket}</Name><KeyCount>0</KeyCount></ListBucketResult>".encode()


def uploads(bucket: str = BUCKET) -> Answer:
    """A listing without uploads."""
    text = f"<ListMultipartUploadsResult><Bucket>{bucket}</Bucket></ListMultipartUploadsResult>"
    return 200, text.encode()


def store(answer: Answer, **methods: Answer) -> ObjectStore:
    """A store whose server sends this answer to each request, except to those of ``methods``."""
    environment: Mapping[str, str] = {"KEY": "x", "SECRET": "y"}
    made = ObjectStore(BucketLocation(BUCKET, "us-east-1", "http://127.0.0.1:9", "KEY", "SECRET"), environment)

    def send(request: AWSRequest, **_: Any) -> AWSResponse:
        status, content = methods.get(request.method, answer)
        return AWSResponse(request.url, status, {}, Body(b"" if request.method == "HEAD" else content))

    made._client.meta.events.register("before-send.s3", send)
    return made


REQUESTS: Mapping[str, Callable[[ObjectStore], object]] = {
    "objects": lambda it: list(it.objects()),
    "uploads": lambda it: list(it.uploads()),
    "head": lambda it: it.head(KEY),
    "delete": lambda it: it.delete([KEY]),
}
OF_UPLOADS: Mapping[str, Callable[[ObjectStore], object]] = {
    "holds": lambda it: it.holds(Upload(KEY, "u", 0)),
    "abort": lambda it: it.abort(Upload(KEY, "u", 0)),
    "begin": lambda it: it.begin(KEY, 0, 10),
    "read": lambda it: it.read(KEY, 0, 10, "tag"),
}


@pytest.mark.parametrize(
    ("answer", "request_"),
    [
        *(pytest.param(PROXY, call, id=f"404 to {name}") for name, call in (REQUESTS | OF_UPLOADS).items()),
        *(pytest.param(PAGE, call, id=f"200 to {name}") for name, call in REQUESTS.items()),
    ],
)
def test_a_response_that_is_not_s3s_proves_nothing(answer: Answer, request_: Callable[[ObjectStore], object]) -> None:
    with pytest.raises(NoAccess, match="a response that is not S3's; check the endpoint"):
        request_(store(answer))


def test_a_404_to_head_is_not_believed_beside_a_listing_of_another_server() -> None:
    with pytest.raises(NoAccess, match="not S3's"):
        store(listing("another"), HEAD=PROXY).head(KEY)


def test_an_object_is_missing_if_a_listing_names_the_bucket() -> None:
    assert store(listing(), HEAD=ABSENT).head(KEY) is None


def test_a_deletion_of_a_missing_object_leaves_nothing() -> None:
    assert store(listing(), HEAD=ABSENT, POST=(200, b"<DeleteResult/>")).delete([KEY]) == []


def test_an_empty_page_that_names_the_bucket_is_a_listing() -> None:
    assert (list(store(listing()).objects()), list(store(uploads()).uploads())) == ([[]], [[]])


def test_an_upload_that_s3_does_not_know_has_no_parts() -> None:
    gone = store((404, b"<Error><Code>NoSuchUpload</Code></Error>"))
    assert (gone.holds(Upload(KEY, "u", 0)), gone.parts(Upload(KEY, "u", 0))) == (False, [])


def test_a_key_that_s3_does_not_know_is_no_object() -> None:
    assert store(ABSENT).begin(KEY, 0, 10) is None
