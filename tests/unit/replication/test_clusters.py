"""What the settings of a link's topics say about its path."""

import pytest

from trueup.connectors.replication.config_sync import TopicPairs
from trueup.state.replication.config_sync import Setting, TopicConfigs
from trueup.streams.replication.clusters import compacted


def seen(*policies: str) -> TopicPairs:
    """Topics 0, 1, 2 ... of the source with these values of cleanup.policy."""
    configs = [{"cleanup.policy": Setting(policy, own=True)} if policy else {} for policy in policies]
    return TopicPairs({str(n): TopicConfigs(1, configs=each) for n, each in enumerate(configs)}, {})


@pytest.mark.parametrize(
    ("policies", "wanted"),
    [
        (("compact",), True),
        (("compact", "compact,delete"), True),
        (("compact", "delete"), False),
        (("delete",), False),
        (("",), False),
        ((), False),
    ],
)
def test_all_topics_of_the_source_count(policies: tuple[str, ...], wanted: bool) -> None:
    assert compacted(seen(*policies), ["0", "1", "gone"]) == wanted
