"""A topic that links copy in both directions is deleted and created again, and the commands that are shown are
executed."""

import shlex
import time
from collections.abc import Mapping, Sequence
from itertools import count
from typing import Any

from bench.common.measure import tell
from tests.e2e.trueup import Trueup
from tests.replication.arrivals import Arrivals
from tests.replication.lanes import FEW
from tests.replication.pair import Broker, recreate
from tests.replication.writers import Site, Writers

LIMIT_S, LOOK_S = 240.0, 1.0
NO_RESPONSE, REFUSED = 4, 5
"""Exit codes of commands."""
EXCLUDE = "trueup config set links."
MOST = 12
"""Commands that are enough for two links of one topic with two partitions."""


class Purges:
    """Purges of one topic. ``links``: the link to each cluster, and back from it.

    Records of the purged cluster that no link had copied are lost, as documented: they need not be there afterwards.
    What the other cluster has of it must be there again, once and in the same order. Writers there continue; those of
    the purged cluster start again before any command is executed, and their records have new keys, because they are
    at that cluster between the records that are copied back, and at the other one after them.
    """

    def __init__(
        self, trueup: Trueup, sites: Sequence[Site], writers: Writers, brokers: Mapping[str, Broker], per_s: float
    ) -> None:
        self._trueup, self._sites, self._writers, self._brokers, self._per_s = trueup, sites, writers, brokers, per_s
        self._numbers = count(1)

    def purge(self, links: Sequence[str], *sides: str) -> None:
        """Purge the topic at these clusters. Returns when records arrive at both."""
        chosen = [site for site in self._sites if site.name in sides]
        self._stop_writers(sides)
        for site in chosen:
            recreate(self._brokers[site.name], site.topic, site.partitions, {})
        self._start_writers(chosen)
        self._trueup.until("commands of both links", lambda: all(self._ways(link) for link in links), LIMIT_S)
        self._follow(links)
        with Arrivals(self._sites) as arrivals:
            arrivals.wait_all(LIMIT_S, f"after a purge at {' and '.join(sides)}")

    def _stop_writers(self, sides: Sequence[str]) -> None:
        stopped = [writer for writer in self._writers.all if writer.site.name in sides]
        for writer in stopped:
            writer.stop()
        self._writers.all = [writer for writer in self._writers.all if writer not in stopped]

    def _start_writers(self, sites: Sequence[Site]) -> None:
        started = Writers(sites, FEW, self._per_s, suffix=f"-{next(self._numbers)}").all
        self._writers.all += started
        for writer in started:
            writer.start()

    def _follow(self, links: Sequence[str]) -> None:
        """Execute the recommended commands as they are shown, until none is shown and no refill is in progress."""
        done: list[str] = []

        def settled() -> bool:
            shown = [way["command"] for link in links for way in self._ways(link) if way["recommended"]]
            # The topic exists again. Until the link has observed it, the command that excludes it is shown.
            shown = [command for command in shown if not command.startswith(EXCLUDE)]
            if shown:
                assert len(done) < MOST, (done, shown, self._trueup.diagnostics())
                if self._execute(shown[0]):
                    done.append(shown[0])
                time.sleep(LOOK_S)
            return not shown and not any(self._refilling(link) for link in links)

        self._trueup.until("the copy to continue", settled, LIMIT_S)
        tell(f"purge: {'; '.join(done)}")

    def _execute(self, command: str) -> bool:
        """Execute a command. False if it had no response in time, or was refused because the state has changed since it
        was shown."""
        result = self._trueup.run(*shlex.split(command)[1:])
        assert result.code in (0, NO_RESPONSE, REFUSED), (command, result, self._trueup.diagnostics())
        return result.code == 0

    def _ways(self, link: str) -> list[dict[str, Any]]:
        topic = self._sites[0].topic
        return [way for way in self._trueup.api(f"links/{link}")["ways"] if way["topic"] == topic]

    def _refilling(self, link: str) -> bool:
        return any(copy["refill_until"] >= 0 for copy in self._trueup.api(f"links/{link}")["copies"])
