"""One bucket. Credentials are found by boto3's own chain or in two environment variables that are named, and stay here:
nothing that is raised, logged or returned holds one.

Every call is limited in time and tried three times; what then still fails is told as what to do about it: `Retry` (a
store that does not answer, or is busy), `Stop` (denied, no such bucket), `Unknown` (a deletion without an answer).
"""

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, NamedTuple, TypeVar

from botocore.exceptions import BotoCoreError, ClientError, ConnectTimeoutError, NoCredentialsError

from trueup.state.common.errors import Retry, Stop, TrueupError, Unknown
from trueup.state.deletion.stores import Store as Declared

TRIES, CONNECT_S, ANSWER_S = 3, 5.0, 30.0
TOGETHER = 1_000
"""Keys of one request, as S3 has it."""
_GONE = frozenset({"404", "NoSuchKey", "NotFound", "NoSuchUpload"})
_LATER = frozenset({"SlowDown", "RequestTimeout", "RequestTimeTooSkewed", "InternalError", "ServiceUnavailable",
                    "OperationAborted", "Throttling", "503", "500", "429"})  # fmt: skip
_T = TypeVar("_T")


@dataclass(frozen=True, slots=True)
class Place:
    """Where a bucket is. Empty: as boto3's own configuration has it. ``key_env``, ``secret_env``: the environment
    variables with the credentials."""

    bucket: str
    region: str = ""
    endpoint: str = ""
    key_env: str = ""
    secret_env: str = ""

    def __str__(self) -> str:
        return f"{self.endpoint or 's3:/'}/{self.bucket}"


class Object(NamedTuple):
    """One object as a listing has it. ``size`` in bytes, ``modified_ms`` since the epoch."""

    key: str
    size: int
    modified_ms: int


class Head(NamedTuple):
    """One object as it is now. ``tag``: its ETag, another for other bytes. ``said``: its user metadata, with names in
    lower case."""

    size: int
    modified_ms: int
    tag: str
    said: Mapping[str, str]


class Upload(NamedTuple):
    """A multipart upload that was begun and neither completed nor given up; no listing of objects shows it."""

    key: str
    id: str
    begun_ms: int


class Store:
    """A bucket. Safe to use from several threads. Nothing is asked before the first call."""

    def __init__(self, place: Place, environment: Mapping[str, str] = os.environ) -> None:
        self.place, self._environment = place, environment
        self._made: Any = None

    @property
    def _client(self) -> Any:
        if self._made is None:
            self._made = _client(self.place, self._environment)
        return self._made

    def objects(self) -> Iterator[list[Object]]:
        """Every object, a page at a time. What is written or deleted meanwhile may or may not be among them."""
        pages = self._client.get_paginator("list_objects_v2").paginate(Bucket=self.place.bucket)
        for page in self._pages("list objects", pages):
            yield [Object(o["Key"], o["Size"], _ms(o["LastModified"])) for o in page.get("Contents", [])]

    def uploads(self) -> Iterator[list[Upload]]:
        """Every incomplete multipart upload, a page at a time."""
        pages = self._client.get_paginator("list_multipart_uploads").paginate(Bucket=self.place.bucket)
        for page in self._pages("list uploads", pages):
            yield [Upload(u["Key"], u["UploadId"], _ms(u["Initiated"])) for u in page.get("Uploads", [])]

    def head(self, key: str) -> Head | None:
        """An object, None if there is none of this name."""
        found = self._call(f"look at {key}", lambda: self._client.head_object(Bucket=self.place.bucket, Key=key))
        if found is None:
            return None
        said = {name.lower(): value for name, value in found.get("Metadata", {}).items()}
        return Head(found["ContentLength"], _ms(found["LastModified"]), found["ETag"], said)

    def read(self, key: str, offset: int, count: int, tag: str) -> bytes:
        """So many bytes of an object, fewer at its end. Raises `Stop` if it is gone or is another by now."""
        where = {"Bucket": self.place.bucket, "Key": key, "Range": f"bytes={offset}-{offset + count - 1}"}
        what = f"read {key} from byte {offset} on"
        found = self._call(what, lambda: self._client.get_object(**where, IfMatch=tag)["Body"].read())
        if found is None:
            raise Stop(f"{key} in {self.place}", "none", "it was deleted meanwhile")
        return bytes(found)

    def delete(self, keys: Sequence[str]) -> list[str]:
        """Delete these objects, then look whether each is gone; those that are not. One that is not there is gone."""
        for at in range(0, len(keys), TOGETHER):
            some = {"Objects": [{"Key": key} for key in keys[at : at + TOGETHER]], "Quiet": True}
            self._call("delete objects", lambda: self._client.delete_objects(Bucket=self.place.bucket, Delete=some),  # noqa: B023
                       lost=Unknown)  # fmt: skip
        return [key for key in keys if self.head(key) is not None]

    def abort(self, upload: Upload) -> bool:
        """Give an upload up; whether it is gone then."""
        where = {"Bucket": self.place.bucket, "Key": upload.key, "UploadId": upload.id}
        what = f"give up the upload of {upload.key}"
        self._call(what, lambda: self._client.abort_multipart_upload(**where), lost=Unknown)
        return not self.holds(upload)

    def holds(self, upload: Upload) -> bool:
        """Whether an upload exists. It may have no parts yet."""
        where = {"Bucket": self.place.bucket, "Key": upload.key, "UploadId": upload.id, "MaxParts": 1}
        found = self._call(f"look at the upload of {upload.key}", lambda: self._client.list_parts(**where))
        return found is not None

    def parts(self, upload: Upload) -> list[int]:
        """Bytes of each part that an upload holds."""
        where = {"Bucket": self.place.bucket, "Key": upload.key, "UploadId": upload.id}
        pages = self._client.get_paginator("list_parts").paginate(**where)
        return [part["Size"] for page in self._pages("list parts", pages) for part in page.get("Parts", [])]

    def _pages(self, what: str, pages: Any) -> Iterator[Mapping[str, Any]]:
        each = iter(pages)
        while (page := self._call(what, lambda: next(each, None))) is not None:
            yield page

    def _call(self, what: str, call: Callable[[], _T], lost: type[TrueupError] = Retry) -> _T | None:
        """What the store says, None if there is no such object."""
        try:
            return call()
        except ClientError as error:
            code = str(error.response.get("Error", {}).get("Code", ""))
            if code in _GONE:
                return None
            raise _refused(f"{self.place} to {what}", code, error) from None
        except (BotoCoreError, OSError) as error:
            raise _unanswered(f"{self.place} to {what}", error, lost) from None


def store_of(declared: Declared) -> Store:
    """A store of the settings."""
    return Store(Place(declared.bucket, declared.region, declared.endpoint, declared.key_env, declared.secret_env))


def _client(place: Place, environment: Mapping[str, str]) -> Any:
    import boto3  # takes 0.15 s that no start without a store should wait for
    from botocore.config import Config

    config = Config(
        connect_timeout=CONNECT_S, read_timeout=ANSWER_S, retries={"total_max_attempts": TRIES, "mode": "standard"},
        s3={"addressing_style": "path"} if place.endpoint else None,
    )  # fmt: skip
    try:
        return boto3.session.Session().client(
            "s3", config=config, region_name=place.region or None, endpoint_url=place.endpoint or None,
            aws_access_key_id=_named(place.key_env, environment),
            aws_secret_access_key=_named(place.secret_env, environment),
        )  # fmt: skip
    except (BotoCoreError, ValueError) as error:
        raise Stop(f"a usable place of {place}", type(error).__name__, "correct region and endpoint") from None


def _named(variable: str, environment: Mapping[str, str]) -> str | None:
    if not variable:
        return None
    if not environment.get(variable):
        raise Stop(f"a credential in the environment variable {variable}", "none", "set it where Trueup is started")
    return environment[variable]


def _refused(expected: str, code: str, error: ClientError) -> TrueupError:
    """Only the code of an answer is told: the rest may repeat what was sent."""
    status = int(error.response.get("ResponseMetadata", {}).get("HTTPStatusCode", 0))
    if code in _LATER or status >= 500:
        return Retry(expected, f"{code or status}", "it is asked again later")
    if code == "PreconditionFailed" or status == 412:
        return Stop(expected, "another object of the same name", "it was written anew meanwhile")
    return Stop(expected, f"{code or status}", "correct the bucket, its region, or the rights of the credentials")


def _unanswered(expected: str, error: Exception, lost: type[TrueupError]) -> TrueupError:
    if isinstance(error, NoCredentialsError):
        return Stop(expected, "no credentials", "name them in the environment, or use the files of the AWS tools")
    # Whoever could not even connect has changed nothing.
    kind = Retry if isinstance(error, ConnectTimeoutError) else lost
    return kind(expected, f"no answer ({type(error).__name__})", "see that the store can be reached")


def _ms(time: datetime) -> int:
    return round(time.timestamp() * 1000)
