"""`trueup` on a machine that is slow: the first attempt of each step of a start that waits for a server fails."""

import sys
from collections.abc import Callable
from functools import wraps
from typing import Any

from trueup.connectors.kafka.journal.embedded import EmbeddedKafka
from trueup.state.common.errors import Retry
from trueup.streams import app
from trueup.streams.catalog import STREAMS
from trueup.streams.cli.main import invoke
from trueup.streams.config.journal_topics import JournalTopics
from trueup.streams.config.live import Live
from trueup.streams.instance.election import Election
from trueup.streams.journal.history import History
from trueup.streams.journal.journal import Journal
from trueup.streams.runtime.descriptor import Descriptor
from trueup.streams.runtime.spark.driver import Driver
from trueup.streams.runtime.stream import Stream

STEPS = {
    "ready": (EmbeddedKafka, "wait_ready"),
    "topics": (Journal, "create"),
    "recreated": (app, "recreated"),
    "sign": (Election, "enter"),
    "transactions": (Journal, "lead"),
    "history": (History, "load"),
    "settings": (Live, "load"),
    "known topics": (JournalTopics, "start"),
    "session": (Driver, "begin"),
}
"""The steps by a name that the error contains."""


def late(name: str, step: Callable[..., Any]) -> Callable[..., Any]:
    """This step, of which the first attempt fails."""
    tried = False

    @wraps(step)
    def attempt(*args: Any, **named: Any) -> Any:
        nonlocal tried
        if not tried:
            tried = True
            raise Retry(f"{name} in time", "a slow machine", "try again")
        return step(*args, **named)

    return attempt


def stumbles(each: Descriptor) -> Descriptor:
    """This entry of the catalog, with a stream that is made and loaded too late."""

    def make(*args: Any) -> Stream | None:
        made = each.make(*args)
        if made is not None:
            vars(made)["load"] = late(f"{each.name} loaded", made.load)
        return made

    return each._replace(make=late(f"{each.name} made", make))


if __name__ == "__main__":
    for title, (owner, method) in STEPS.items():
        setattr(owner, method, late(title, getattr(owner, method)))
    vars(app)["STREAMS"] = [*map(stumbles, STREAMS)]
    sys.exit(invoke(sys.argv[1:]))
