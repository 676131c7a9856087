"""The section ``spark`` of the settings: the Spark session, and the place of its checkpoints."""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from urllib.parse import urlsplit

from trueup.state.common.options import COUNT, key, shown
from trueup.state.settings.section import Draft, Section

S3A, S3A_SET = "s3a", "s3a-3.5.0"
"""The scheme of locations in a bucket, and the locked jars that read and write them."""
_MEMORY = re.compile(r"[1-9][0-9]{0,8}[kmgt]b?", re.IGNORECASE)
"""The syntax of Java's -Xmx and of Spark's spark.driver.memory (JavaUtils.byteStringAs)."""
_LOCAL = re.compile(r"local\[(\d+)\]")
_LOCATION = re.compile(r"(/|[a-z][a-z0-9+.-]*://?)[^\s?#]*")
_BUCKET, _ENDPOINT = re.compile(r"[a-z0-9][a-z0-9.-]{1,61}[a-z0-9]"), re.compile(r"https?://[^\s/?#@]+/?")


@dataclass(frozen=True, slots=True)
class SparkSettings:
    """The Spark session."""

    master: str = key("local[2]", "Spark master: local[N], or a cluster, such as spark://host:port")
    buckets: int = key(
        16,
        "Number of buckets of the view, fixed for the lifetime of the checkpoint; fewer buckets reduce latency, "
        "more buckets use more cores",
        least=1,
        most=4_096,
    )
    partitions: int = key(
        2,
        "Number of tasks that process the buckets, fixed for the lifetime of the checkpoint; the maximum number of "
        "cores used",
        least=1,
        most=1_024,
    )
    trigger_ms: int = key(200, "Minimum interval between micro-batches in milliseconds", least=0, most=86_400_000)
    max_records: int = key(250_000, "Maximum number of records per micro-batch", least=1, most=COUNT)
    memory: str = key("2g", "Heap size of the driver")
    ui_port: int = key(0, "Port of the Spark UI; 0: any free port", least=0, most=65_535)
    checkpoint: str = key(
        "",
        "Location of the checkpoints of this application alone, which driver and executors reach under the same "
        "name: file:///path on a shared file system, s3a://bucket/path, or another one of Hadoop. Required on a "
        "cluster. Empty: a directory in data_dir",
    )
    checkpoint_region: str = key("", "Region of the bucket of an s3a location; empty: found from the endpoint")
    checkpoint_endpoint: str = key("", "http(s)://host[:port] of a service with an S3 API; empty: AWS")
    checkpoint_key_env: str = key(
        "",
        "Environment variable of the driver that contains the access key; empty: the providers of S3A, "
        "AWS_ACCESS_KEY_ID among them",
    )
    checkpoint_secret_env: str = key("", "Environment variable of the driver that contains the secret key")
    conf: dict[str, str] = key(dict, "Additional Spark settings", secret=True)

    @property
    def slots(self) -> int | None:
        """The slots of a local master; None if their number is not in the settings."""
        match = _LOCAL.fullmatch(self.master)
        return int(match[1]) if match else None

    @property
    def on_cluster(self) -> bool:
        """Whether executors are processes of their own, possibly on other machines."""
        return not self.master.startswith("local")

    @property
    def bucket(self) -> str:
        """The bucket of the checkpoints; empty without one."""
        parts = urlsplit(self.checkpoint)
        return parts.netloc if parts.scheme == S3A else ""


def check(draft: Draft) -> Iterator[str]:
    """The problems of the section: key, expected, found."""
    spark = draft.section(SparkSettings)
    if spark is None:
        return
    if not _MEMORY.fullmatch(spark.memory):
        yield f"spark.memory: expected a size such as 512m or 2g; found {shown(spark.memory)}"
    yield from _check_location(spark)
    if spark.checkpoint_endpoint and not _ENDPOINT.fullmatch(spark.checkpoint_endpoint):
        yield "spark.checkpoint_endpoint: expected http(s)://host[:port], without path or user; found something else"
    if bool(spark.checkpoint_key_env) != bool(spark.checkpoint_secret_env):
        given, other = ("key", "secret") if spark.checkpoint_key_env else ("secret", "key")
        reason = f"because checkpoint_{given}_env is set"
        yield f"spark.checkpoint_{other}_env: expected the name of a variable {reason}; found nothing"


def _check_location(spark: SparkSettings) -> Iterator[str]:
    if spark.on_cluster and not spark.checkpoint:
        yield (
            "spark.checkpoint: expected a location that driver and executors reach, because spark.master is a cluster; "
            "found nothing"
        )
    if spark.checkpoint and not _LOCATION.fullmatch(spark.checkpoint):
        yield "spark.checkpoint: expected an absolute path or a URL, such as s3a://bucket/path; found something else"
    elif spark.checkpoint.startswith(f"{S3A}:") and not _BUCKET.fullmatch(spark.bucket):
        yield "spark.checkpoint: expected s3a://bucket/path, without a user; found another form"
    for name in ("region", "endpoint", "key_env", "secret_env"):
        if getattr(spark, f"checkpoint_{name}") and not spark.bucket:
            yield f"spark.checkpoint_{name}: expected spark.checkpoint to be s3a://bucket/path; found another one"


def check_env(draft: Draft, env: Mapping[str, str]) -> Iterator[str]:
    """A problem for each variable that the section names and that is not set."""
    spark = draft.section(SparkSettings)
    for name in ("checkpoint_key_env", "checkpoint_secret_env") if spark else ():
        variable = getattr(spark, name)
        if variable and not env.get(variable):
            yield f"spark.{name}: expected a variable that is set; found {shown(variable)} unset"


SPARK = Section("spark", SparkSettings, check=check, check_env=check_env)
