"""`trueup what-if` as the running application answers it."""

import json

from tests.unit.cli.conftest import Run
from tests.unit.cli.test_cli import rows


def test_what_would_happen_is_asked_of_the_application(run: Run) -> None:
    done = run("what-if", "rack")
    failures = [words[0] for words in rows(done)[1:4]]
    assert (failures, done.out.splitlines()[-1].endswith(" ago by the application.")) == (
        ["now", "/rack2", "/rack1"], True,
    ), done  # fmt: skip


def test_the_application_answers_for_one_bookie(run: Run) -> None:
    found = json.loads(run("what-if", "bookie", "127.0.0.2:3181", "-o", "json").out)
    assert ([row["name"] for row in found["rows"]], found["ledgers"]) == (["now", "127.0.0.2:3181"], 1204)


def test_several_names_together_need_the_cluster(run: Run) -> None:
    done = run("what-if", "bookie", "127.0.0.2:3181", "127.0.0.3:3181")
    assert (done.code, "name the cluster with -c FILE" in done.err) == (5, True), done
