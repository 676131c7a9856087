"""What the pages show in tests."""

import math

from tests.unit.cli.fake_engine import FakeEngine
from tests.unit.cli.fake_rows import NOW


def everything() -> FakeEngine:
    """A cluster with data of every stream, and their course in the last hours."""
    made = FakeEngine().forgotten().shelved().linked().drill()
    made.state["subjects"] = [
        {"name": name, "mode": "approve", "paused": False, "counts": {}, "oldest_ms": None}
        for name in ("placement", "deletion", "replication", "logdirs")
    ]
    at = range(400)
    wave = [round(17 + 180 * math.exp(-(((n - 250) / 40) ** 2))) * (n > 60) for n in at]
    made.course = {
        "placement": _course(
            {
                "drifted": wave,
                "blocked": [2 * (n > 200) for n in at],
                "unknown": [1 for _ in at],
                "marks outstanding": [round(31 + 0.7 * (one - wave[-1])) for one in [*wave[-20:], *wave[:-20]]],
                "lost bookies": [int(n > 240) for n in at],
            }
        ),
        "deletion": _course({"unreferenced": [2 for _ in at], "deletions in progress": [int(n > 300) * 2 for n in at]}),
        "replication": _course(
            {
                "records/s": [round(900 + 100 * math.sin(n / 9)) for n in at],
                "lag records": [round(1_190 + 10 * math.cos(n / 9)) for n in at],
            }
        ),
        "logdirs": _course({"skew %": [60 for _ in at], "planned moves": [1 for _ in at]}),
    }
    return made


def _course(series: dict[str, list[int]]) -> dict[str, object]:
    count = len(next(iter(series.values())))
    return {"every_ms": 15_000, "at_ms": [NOW - 15_000 * (count - n) for n in range(count)], "series": series}
