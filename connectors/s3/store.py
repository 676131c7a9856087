"""One bucket. Credentials come from boto3's own chain or from two named environment variables, and are never part of
an error, a log line or a result.

Every call has a time-out and is attempted three times; the remaining error states what to do: `Retry` (a
store that does not respond, or is busy), `Stop` (denied, no such bucket), `Unknown` (a deletion without a response).
"""

import os
import re
from collections.abc import Callable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass
from datetime import datetime
from types import MappingProxyType
from typing import Any, NamedTuple, TypeVar

from botocore.exceptions import BotoCoreError, ClientError, ConnectTimeoutError, NoCredentialsError, SSLError

from trueup.connectors.tls import tls_of
from trueup.state.common.errors import BadSettings, Refused, Retry, Stop, TrueupError, Unknown
from trueup.state.deletion.stores import StoreSettings as Declared

TRIES, CONNECT_S, ANSWER_S = 3, 5.0, 30.0
_RANGE = re.compile(r"bytes (\d{1,19})-\d{1,19}/(\d{1,19})", re.ASCII)
TOGETHER = 1_000
"""Maximum keys per request of S3."""
_NO_KEY, _NO_UPLOAD = frozenset({"NoSuchKey"}), frozenset({"NoSuchUpload"})
_NO_HEAD = _NO_KEY | {"404", "NotFound"}
"""The codes of a missing object in a response without a body. Any web server sends the same response."""
_LATER = frozenset(
    {
        "SlowDown",
        "RequestTimeout",
        "RequestTimeTooSkewed",
        "InternalError",
        "ServiceUnavailable",
        "OperationAborted",
        "Throttling",
        "503",
        "500",
        "429",
    }
)
_T = TypeVar("_T")


class NoAccess(Stop):
    """The store refuses requests, or an object changed during a read. Nothing is known about the object."""


class NoSuchBytes(Refused):
    """The object was deleted during a read, or ends before the requested bytes."""


@dataclass(frozen=True, slots=True)
class BucketLocation:
    """The location of a bucket. The values of empty fields are taken from boto3's own configuration."""

    bucket: str
    region: str = ""
    endpoint: str = ""
    key_env: str = ""
    """The name of the environment variable with the access key id."""
    secret_env: str = ""
    """The name of the environment variable with the secret access key."""
    ca: str = ""
    """The path of a PEM file of authorities."""

    def __str__(self) -> str:
        return f"{self.endpoint or 's3:/'}/{self.bucket}"


class Object(NamedTuple):
    """One object of a listing."""

    key: str
    size: int
    """The size of the object in bytes."""
    modified_ms: int
    """The time of the last modification, ms since the epoch."""


class Head(NamedTuple):
    """The current state of one object."""

    size: int
    modified_ms: int
    tag: str
    """The ETag of the object, which changes with its bytes."""
    metadata: Mapping[str, str]
    """The user metadata of the object, with names in lower case."""


class ObjectStart(NamedTuple):
    """A range of the bytes of an object, and the properties of the whole object."""

    content: bytes
    """The bytes of the range."""
    size: int
    """The size of the whole object in bytes."""
    tag: str
    """The ETag of the object."""
    metadata: Mapping[str, str] = MappingProxyType({})
    """The user metadata of the object, with names in lower case."""


class Upload(NamedTuple):
    """A multipart upload that is neither completed nor aborted; no listing of objects shows it."""

    key: str
    id: str
    begun_ms: int


class ObjectStore:
    """A bucket. Safe to use from several threads. Sends nothing before the first call."""

    def __init__(self, place: BucketLocation, environment: Mapping[str, str] = os.environ) -> None:
        self.place, self._environment = place, environment
        self._made: Any = None

    @property
    def _client(self) -> Any:
        if self._made is None:
            self._made = _client(self.place, self._environment)
        return self._made

    def objects(self) -> Iterator[list[Object]]:
        """Every object, page by page. Concurrent writes and deletions may or may not be included."""
        pages = self._client.get_paginator("list_objects_v2").paginate(Bucket=self.place.bucket)
        for page in self._pages("list objects", pages, "Name"):
            yield [Object(o["Key"], o["Size"], _ms(o["LastModified"])) for o in page.get("Contents", [])]

    def uploads(self) -> Iterator[list[Upload]]:
        """Every incomplete multipart upload, page by page."""
        pages = self._client.get_paginator("list_multipart_uploads").paginate(Bucket=self.place.bucket)
        for page in self._pages("list uploads", pages, "Bucket"):
            yield [Upload(u["Key"], u["UploadId"], _ms(u["Initiated"])) for u in page.get("Uploads", [])]

    def head(self, key: str) -> Head | None:
        """An object, or None if it does not exist. Raises `NoAccess` if the response is not S3's."""
        what, where = f"read {key}", {"Bucket": self.place.bucket}
        response = self._call(what, lambda: self._client.head_object(**where, Key=key), absent=_NO_HEAD)
        if response is None:
            # A proxy with another path sends 404 too. Only a listing has a body that shows whose response it is.
            page = self._call(what, lambda: self._client.list_objects_v2(**where, Prefix=key, MaxKeys=1))
            self._of_bucket(what, page, "Name")
            return None
        if "ETag" not in response or "LastModified" not in response:
            raise _foreign(f"{self.place} to {what}")
        return Head(response["ContentLength"], _ms(response["LastModified"]), response["ETag"], _metadata(response))

    def read(self, key: str, offset: int, count: int, tag: str) -> bytes:
        """``count`` bytes of an object, fewer at its end. Raises `NoSuchBytes` if it was deleted or ends before
        ``offset``, `NoAccess` if it was replaced."""
        where = {"Bucket": self.place.bucket, "Key": key, "Range": f"bytes={offset}-{offset + count - 1}"}
        what = f"read {key} from byte {offset}"
        content = self._call(what, lambda: self._client.get_object(**where, IfMatch=tag)["Body"].read(), absent=_NO_KEY)
        if content is None:
            raise NoSuchBytes(f"{key} in {self.place}", "none", "it was deleted meanwhile")
        return bytes(content)

    def begin(self, key: str, offset: int, count: int) -> ObjectStart | None:
        """``count`` bytes of an object, fewer at its end, with what `read` needs for further ones: one request, where
        `head` and `read` are two. None if it does not exist. Raises `NoSuchBytes` if it ends before ``offset``."""
        where = {"Bucket": self.place.bucket, "Key": key, "Range": f"bytes={offset}-{offset + count - 1}"}

        def get() -> ObjectStart:
            response = self._client.get_object(**where)
            content = bytes(response["Body"].read())
            size = _RANGE.fullmatch(response.get("ContentRange", ""))
            if size is None or int(size[1]) != offset:
                expected, seen = (
                    f"the range of {key} from byte {offset}",
                    response.get("ContentRange", "the whole object"),
                )
                raise Stop(f"{self.place} to return {expected}", seen, "use a store that supports ranges")
            return ObjectStart(content, int(size[2]), response["ETag"], _metadata(response))

        return self._call(f"read {key} from byte {offset}", get, absent=_NO_KEY)

    def delete(self, keys: Sequence[str]) -> list[str]:
        """Delete these objects, then check each. Returns those that still exist."""
        for at in range(0, len(keys), TOGETHER):
            some = {"Objects": [{"Key": key} for key in keys[at : at + TOGETHER]], "Quiet": True}
            self._call(
                "delete objects",
                lambda: self._client.delete_objects(Bucket=self.place.bucket, Delete=some),  # noqa: B023
                lost=Unknown,
            )
        return [key for key in keys if self.head(key) is not None]

    def abort(self, upload: Upload) -> bool:
        """Abort an upload. Returns whether it is gone."""
        where = {"Bucket": self.place.bucket, "Key": upload.key, "UploadId": upload.id}
        what = f"abort the upload of {upload.key}"
        self._call(what, lambda: self._client.abort_multipart_upload(**where), Unknown, _NO_UPLOAD)
        return not self.holds(upload)

    def holds(self, upload: Upload) -> bool:
        """Whether an upload exists. It may have no parts yet."""
        where = {"Bucket": self.place.bucket, "Key": upload.key, "UploadId": upload.id, "MaxParts": 1}
        what = f"read the upload of {upload.key}"
        page = self._call(what, lambda: self._client.list_parts(**where), absent=_NO_UPLOAD)
        return page is not None

    def parts(self, upload: Upload) -> list[int]:
        """Bytes of each part of an upload."""
        where = {"Bucket": self.place.bucket, "Key": upload.key, "UploadId": upload.id}
        pages = self._client.get_paginator("list_parts").paginate(**where)
        listing = self._pages("list parts", pages, absent=_NO_UPLOAD)
        return [part["Size"] for page in listing for part in page.get("Parts", [])]

    def _pages(
        self, what: str, pages: Any, field: str = "", absent: Set[str] = frozenset()
    ) -> Iterator[Mapping[str, Any]]:
        """Each page. Its ``field``, if not empty, is the name of the bucket."""
        responses = iter(pages)
        while (page := self._call(what, lambda: next(responses, None), absent=absent)) is not None:
            if field:
                self._of_bucket(what, page, field)
            yield page

    def _of_bucket(self, what: str, page: Mapping[str, Any] | None, field: str) -> None:
        """Raise `NoAccess` unless the page names the bucket, which a page that is not S3's does not."""
        if page is None or page.get(field) != self.place.bucket:
            raise _foreign(f"{self.place} to {what}")

    def _call(
        self, what: str, call: Callable[[], _T], lost: type[TrueupError] = Retry, absent: Set[str] = frozenset()
    ) -> _T | None:
        """The result of the call, None after an error with a code of ``absent``."""
        try:
            return call()
        except ClientError as error:
            code = str(error.response.get("Error", {}).get("Code", ""))
            if code in absent:
                return None
            raise _refused(f"{self.place} to {what}", code, error) from None
        except (BotoCoreError, OSError) as error:
            raise _unanswered(f"{self.place} to {what}", error, lost) from None


def store_of(declared: Declared) -> ObjectStore:
    """The store for a store of the settings."""
    return ObjectStore(
        BucketLocation(
            declared.bucket, declared.region, declared.endpoint, declared.key_env, declared.secret_env, declared.ca
        )
    )


def _client(place: BucketLocation, environment: Mapping[str, str]) -> Any:
    import boto3  # takes 0.15 s, which a start without a store avoids
    from botocore.config import Config

    config = Config(
        connect_timeout=CONNECT_S,
        read_timeout=ANSWER_S,
        retries={"total_max_attempts": TRIES, "mode": "standard"},
        s3={"addressing_style": "path"} if place.endpoint else None,
    )
    try:
        if place.ca:
            tls_of({"tls.ca": place.ca})
        return boto3.session.Session().client(
            "s3",
            config=config,
            verify=place.ca or None,
            region_name=place.region or None,
            endpoint_url=place.endpoint or None,
            aws_access_key_id=_named(place.key_env, environment),
            aws_secret_access_key=_named(place.secret_env, environment),
        )
    except BadSettings as error:
        raise NoAccess(f"a PEM file of authorities for {place}", place.ca, "correct ca of this store") from error
    except (BotoCoreError, ValueError) as error:
        raise NoAccess(f"a usable location of {place}", type(error).__name__, "correct region and endpoint") from None


def _named(variable: str, environment: Mapping[str, str]) -> str | None:
    if not variable:
        return None
    if not environment.get(variable):
        raise NoAccess(f"a credential in the environment variable {variable}", "none", "set it for Trueup")
    return environment[variable]


def _foreign(expected: str) -> NoAccess:
    return NoAccess(expected, "a response that is not S3's", "check the endpoint, and proxies before the store")


def _refused(expected: str, code: str, error: ClientError) -> TrueupError:
    """Only the error code is shown: the rest of the response may repeat the request."""
    status = int(error.response.get("ResponseMetadata", {}).get("HTTPStatusCode", 0))
    if code in _LATER or status >= 500:
        return Retry(expected, f"{code or status}", "the request is retried later")
    if code == "404":  # the status: the response has no code of S3
        return _foreign(expected)
    if code == "InvalidRange" or status == 416:
        return NoSuchBytes(expected, "the end of the object", "the object is shorter than expected; restore it")
    if code == "PreconditionFailed" or status == 412:
        return NoAccess(expected, "another object of the same name", "it was overwritten meanwhile")
    todo = "correct the bucket, its region, or the permissions of the credentials"
    return NoAccess(expected, f"{code or status}", todo)


def _unanswered(expected: str, error: Exception, lost: type[TrueupError]) -> TrueupError:
    if isinstance(error, NoCredentialsError):
        return NoAccess(expected, "no credentials", "set them in the environment, or use the files of the AWS tools")
    if isinstance(error, SSLError):
        text = str(error.kwargs.get("error", "")) or type(error).__name__
        return NoAccess(expected, text, "correct ca of this store, or the host of its endpoint")
    # A client that could not connect has changed nothing.
    kind = Retry if isinstance(error, ConnectTimeoutError) else lost
    return kind(expected, f"no response ({type(error).__name__})", "check that the store is reachable")


def _metadata(response: Mapping[str, Any]) -> dict[str, str]:
    return {name.lower(): value for name, value in response.get("Metadata", {}).items()}


def _ms(time: datetime) -> int:
    return round(time.timestamp() * 1000)
