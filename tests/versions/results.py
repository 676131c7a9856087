"""What the suites found, version by version. It is kept, so that one version can be tried again without the others."""

import json
from collections.abc import Mapping
from pathlib import Path
from xml.etree import ElementTree

PLACE = Path(__file__).parent / "results.json"
WORDS = "words"
"""The property with which a test reports what Trueup says of something that the version does not have."""
Result = dict[str, object]
"""Of a test over all its parameters: ``failed``, the parameters with which it failed; ``why``, the reason of the first;
``words``."""
Results = dict[str, dict[str, Result]]
"""By name of the version and name of the test."""


def kept() -> Results:
    """The results of all versions that were tried."""
    results: Results = json.loads(PLACE.read_text()) if PLACE.exists() else {}
    return results


def keep(results: Mapping[str, Mapping[str, Result]]) -> None:
    """Keep these results instead of those of before."""
    PLACE.write_text(json.dumps(results, indent=1) + "\n")


def parsed(report: str) -> dict[str, Result]:
    """The results by test in a report of pytest (JUnit's XML). A test of which one part fails has failed."""
    results: dict[str, Result] = {}
    for case in ElementTree.fromstring(report).iter("testcase"):
        name, _, parameters = case.get("name", "").partition("[")
        result = results.setdefault(name, {"failed": [], "why": "", WORDS: ""})
        wrong = next((child for child in case if child.tag in ("failure", "error")), None)
        if wrong is not None:
            result["failed"] = [*_list(result["failed"]), parameters.rstrip("]")]
            result["why"] = result["why"] or wrong.get("message", "").partition("\n")[0][:300]
        for each in case.iter("property"):
            result[WORDS] = each.get("value", "") if each.get("name") == WORDS else result[WORDS]
    return results


def _list(found: object) -> list[object]:
    assert isinstance(found, list)
    return found
