"""The log directory stream in the catalog."""

from trueup.streams.logdirs.topics import TOPICS
from trueup.streams.rows import Names, Row
from trueup.streams.runtime.descriptor import Descriptor, LazyObjects, Noun, PageSection, ResourceKind, Verb
from trueup.streams.runtime.named import imported

MOST = 100_000
"""Maximum number of partitions, and of replicas, of a topic."""


def _topic(body: Row) -> Row | None:
    given = {"partitions": 1, "replicas": 1, "configs": {}, **body}
    numbers, configs = (given["partitions"], given["replicas"]), given["configs"]
    right = isinstance(given.get("name"), str) and all(type(n) is int and 1 <= n <= MOST for n in numbers)
    right = right and isinstance(configs, dict) and all(isinstance(v, str) for v in configs.values())
    if not right or set(given) != {"name", "partitions", "replicas", "configs"}:
        return None
    return {"topic": given["name"], "partitions": numbers[0], "replicas": numbers[1], "configs": configs}


def _broker(row: Row) -> Names | None:
    """Findings and history name a broker as CLUSTER/NUMBER; actions of the plan have it in their id and evidence."""
    name = row.get("broker")
    if name is None and str(row.get("rule")).startswith("logdirs.") and "evidence" in row:
        name = f"{str(row['id']).partition('/')[0]}/{row['evidence'].get('broker')}"
    kafka, _, number = str(name).rpartition("/")
    return {"kafka": kafka, "broker": int(number)} if kafka and number.isdecimal() else None


PAGE = PageSection(
    "logdirs", "logdirs/templates/logdirs.html", "directories", card=lambda status: bool(status["logdirs"])
)

LOGDIRS = Descriptor(
    name="logdirs",
    topics=TOPICS,
    fields="trueup.streams.logdirs.signs:LogDirFields",
    page=(PAGE,),
    metrics=LazyObjects("trueup.streams.logdirs.metrics:LogDirMetrics"),
    settings=LazyObjects("trueup.state.settings.kafka:KAFKA", "trueup.state.logdirs.settings:LOGDIRS"),
    rules=LazyObjects("trueup.state.logdirs.rules:LOGDIR_RULES"),
    commands=lambda: imported("trueup.streams.logdirs.commands:COMMANDS"),
    checks=lambda settings: imported("trueup.streams.logdirs.checks:all_of")(settings),
    make=lambda context: imported("trueup.streams.logdirs.stream:LogDirsStream")(context),
    lists=(Noun("directories"),),
    things=(ResourceKind("broker", "brokers/<kafka>/<int:broker>", names=_broker),),
    kinds={
        "move": "orders the broker to move the replica {topic}: {reason}",
        "cordon": "changes which directories of {topic} take new partitions: {reason}",
    },
    units={"moving": "moves", "planned moves": "moves"},
    verbs=(
        Verb(
            "topic",
            "topics/<kafka>",
            '{"name": "...", "partitions": 1, "replicas": 1, "configs": {"retention.ms": "-1"}}',
            _topic,
            "name is required; the other fields have these defaults",
        ),
    ),
)
