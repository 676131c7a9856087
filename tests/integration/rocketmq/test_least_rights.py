"""The rows of the table "Rights" in docs/rocketmq.md: its requests are accepted with the rights of a row, and one of
them is refused without any one of these."""

import re
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import NamedTuple

import pytest

from tests.integration.rocketmq import administration
from tests.integration.rocketmq.clusters import BORN_MS, Cluster, running, wait_for_figures
from trueup.connectors.contract import LogId
from trueup.connectors.embedded.processes import wait_until
from trueup.connectors.rocketmq.client import group_offsets, messages, rights, topics
from trueup.connectors.rocketmq.client.cluster import RocketMqClient
from trueup.connectors.rocketmq.protocol import batch
from trueup.state.common.errors import Stop

pytestmark = [pytest.mark.servers, pytest.mark.release]
PAGE = (Path(__file__).parents[3] / "docs" / "rocketmq.md").read_text()
ADMIN, BROKER, GROUP = ("admin", "adminsecret12"), "broker-a", "billing"
LOG = LogId("orders", 0, BROKER)
USER = {"username": "link", "userType": "Normal", "userStatus": "enable"}
SUBJECT, OTHER = "User:link", "User:other"
RESOURCES = {"Topic": f"Topic:{LOG.topic}", "Group": f"Group:{GROUP}"}
ACTIONS = frozenset({"Pub", "Sub", "Create", "Update", "Get", "List"})
OTHERWISE = "Delete"
"""An action that no row needs: an entry must have one."""
FEW = {
    "subject": OTHER,
    "policies": [
        {
            "policyType": "Custom",
            "entries": [{"resource": "Topic:any", "actions": ["Get"], "sourceIps": [], "decision": "Allow"}],
        }
    ],
}


def asks(request: messages.RocketMqRequest) -> Callable[[RocketMqClient], object]:
    return lambda client: client.ask(BROKER, request)


CALLS: Mapping[int, Callable[[RocketMqClient], object]] = {
    11: asks(messages.pull(LOG, 0, 1)),
    14: lambda client: group_offsets.offset(client, GROUP, LOG),
    15: lambda client: group_offsets.commit(client, GROUP, LOG, 0),
    17: lambda client: topics.put_topic(client, BROKER, topics.RocketMqTopic(LOG.topic, 1, 1)),
    21: lambda client: topics.topics(client, BROKER),
    28: lambda client: topics.runtime(client, BROKER),
    29: asks(messages.offset_at(LOG, 0)),
    30: asks(messages.end_offset(LOG)),
    31: asks(messages.first_offset(LOG)),
    43: lambda client: group_offsets.offsets(client, BROKER),
    200: lambda client: topics.put_group(client, BROKER, {"groupName": GROUP}),
    201: lambda client: topics.groups(client, BROKER),
    203: lambda client: group_offsets.members(client, GROUP, [BROKER]),
    320: asks(messages.send_batch(LOG, batch.encode([b"x"], [b""], [0]), BORN_MS)),
    351: lambda client: topics.topic(client, BROKER, LOG.topic),
    3006: lambda client: rights.put_rights(client, BROKER, FEW),
    3007: lambda client: rights.put_rights(client, BROKER, FEW, merge=True),
    3008: lambda client: rights.drop_rights(client, BROKER, OTHER),
    3010: lambda client: rights.rights(client, BROKER),
}


class Row(NamedTuple):
    """A purpose, the codes of its requests, and actions by resource."""

    purpose: str
    codes: list[int]
    needs: dict[str, set[str]]


def rows() -> Iterator[Row]:
    """Those that concern brokers: name servers check nothing."""
    section = PAGE.partition("## Rights\n")[2].partition("\n## ")[0]
    for row in re.findall(r"^\|.*\|$", section, re.MULTILINE)[2:]:
        purpose, codes, granted = (cell.strip() for cell in row.split("|")[1:-1])
        if "name server" not in codes:
            entries = re.findall(r"`([^`]+)`([^;]*)", granted)
            needs = {RESOURCES.get(name, name): ACTIONS & set(re.findall(r"\w+", text)) for name, text in entries}
            yield Row(purpose, [int(code) for code in re.findall(r"\d+", codes)], needs)


@pytest.fixture(scope="module")
def cluster(new_root: Callable[[], Path]) -> Iterator[Cluster]:
    name, secret = ADMIN
    with running(new_root, user=ADMIN, access_key=name, secret_key=secret) as started:
        for user in ("link", "other"):
            administration.put_user(started.client, BROKER, {**USER, "username": user}, f"{user}secret12")
        started.new_topic(LOG.topic)
        topics.put_group(started.client, BROKER, {"groupName": GROUP})
        wait_for_figures(started.client, BROKER)
        yield started


@pytest.fixture
def link(cluster: Cluster) -> Iterator[RocketMqClient]:
    """A client of the user link, which has no rights at first."""
    with cluster.as_user(access_key="link", secret_key="linksecret12") as client:
        yield client
    for subject in {SUBJECT, OTHER} & rights.rights(cluster.client, BROKER).keys():
        rights.drop_rights(cluster.client, BROKER, subject)


def denials(client: RocketMqClient, row: Row) -> list[str]:
    """The refusals of requests of a row. Those for another reason are errors."""
    found = []
    for code in row.codes:
        try:
            CALLS[code](client)
        except Stop as error:
            if "no permission" not in error.found and "The subject of User:link is not exist" not in error.found:
                raise
            found.append(error.found)
            break
    return found


def grant(cluster: Cluster, needs: Mapping[str, set[str]]) -> None:
    """Replace the actions of these resources."""
    entries = [
        {"resource": name, "actions": sorted(actions) or [OTHERWISE], "sourceIps": [], "decision": "Allow"}
        for name, actions in needs.items()
    ]
    wanted = {"subject": SUBJECT, "policies": [{"policyType": "Custom", "entries": entries}]}
    rights.put_rights(cluster.client, BROKER, wanted, merge=SUBJECT in rights.rights(cluster.client, BROKER))


@pytest.mark.parametrize("row", [*rows()], ids=lambda row: row.purpose.split(",")[0].replace(" ", "-"))
def test_each_right_of_a_row_is_needed_and_no_other(cluster: Cluster, link: RocketMqClient, row: Row) -> None:
    needed = {}
    for resource, actions in row.needs.items():
        for action in sorted(actions):
            grant(cluster, row.needs)
            wait_until(lambda: not denials(link, row), 180.0, f"the rights of: {row.purpose}")
            grant(cluster, {**row.needs, resource: actions - {action}})
            wait_until(lambda: denials(link, row), 180.0, f"a refusal without {action} on {resource}")
            needed[resource, action] = denials(link, row)
    if row.needs:
        grant(cluster, row.needs)
    wait_until(lambda: not denials(link, row), 180.0, f"the rights of: {row.purpose}")
    assert [key for key, found in needed.items() if not any(key[0].rstrip("*") in text for text in found)] == []
