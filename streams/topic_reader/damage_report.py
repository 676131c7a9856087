"""Reports replicas that a read found damaged to a running Trueup. A report is evidence and never stops the read."""

import logging
from collections.abc import Callable

from trueup.state.common.errors import TrueupError
from trueup.state.placement.damage import MOST, MOST_AT_ONCE
from trueup.streams.terminal.client import Api, ApiTarget
from trueup.streams.topic_reader.reader import ReadReport

log = logging.getLogger("trueup.reads")
ANSWER_S = 5.0


def send(target: Callable[[], ApiTarget], report: ReadReport) -> str:
    """Report the first `MOST` damaged replicas to the API at ``target``, which is called only if there are any. Its
    URL may be empty: none. If the report fails, logs a warning and returns it; returns nothing otherwise."""
    if not report.damages:
        return ""
    replicas = [
        {
            "ledger": ledger,
            "bookie": bookie,
            "first": damage.entry,
            "last": report.damaged_last[ledger, bookie],
            "found": "missing" if damage.missing else "digest",
        }
        for (ledger, bookie), damage in report.damages.items()
    ]
    try:
        if (api_target := target()).url:
            api = Api(api_target, ANSWER_S)
            for at in range(0, min(len(replicas), MOST), MOST_AT_ONCE):
                api.post("replica-reports", {"replicas": replicas[at : at + MOST_AT_ONCE]})
    except TrueupError as error:
        problem = f"damaged replicas were not reported: {error}"
        log.warning(problem)
        return problem
    return ""
