"""Which topics a link copies if others rename their copies, write heartbeats or dead letters."""

from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.configuration import parse
from trueup.state.common.errors import BadSettings
from trueup.state.replication.leases import target_of, topics_of
from trueup.state.replication.names import LinkNames, original, shown
from trueup.state.replication.settings import LinkSettings

PREFIXED = "{source}.{topic}"


def link(source: str, target: str, topics: tuple[str, ...] = ("/.*/",), **more: Any) -> LinkSettings:
    return LinkSettings(source, target, [*topics], **more)


def both(**more: Any) -> dict[str, LinkSettings]:
    """Opposite links that add a prefix, as MirrorMaker does by default."""
    ends = {"there": ("east", "west"), "back": ("west", "east")}
    return {name: link(*one, rename=PREFIXED, **more) for name, one in ends.items()}


def spread(links: dict[str, LinkSettings], seeds: dict[str, set[str]], rounds: int = 12) -> dict[str, set[str]]:
    """The topics of each cluster after the links have created all copies."""
    names, found = {cluster: set(some) for cluster, some in seeds.items()}, LinkNames(links)
    for _ in range(rounds):
        for one in links.values():
            some = found.copied(one, names.get(one.source, ()))
            names.setdefault(one.target, set()).update(target_of(t, one.rename, one.into, one.source) for t in some)
    return names


def test_renames_in_both_directions_give_each_topic_one_copy() -> None:
    assert spread(both(), {"east": {"orders"}, "west": {"bills"}}) == {
        "east": {"orders", "west.bills"},
        "west": {"bills", "east.orders"},
    }


def test_a_ring_of_renames_ends_where_it_began() -> None:
    ends = [("a", "b"), ("b", "c"), ("c", "a")]
    ring = {f"{one}{other}": link(one, other, rename=PREFIXED) for one, other in ends}
    assert spread(ring, {"a": {"x"}}) == {"a": {"x"}, "b": {"a.x"}, "c": {"b.a.x"}}


def test_a_chain_of_renames_goes_on() -> None:
    chain = {"ab": link("a", "b", rename=PREFIXED), "bc": link("b", "c", rename=PREFIXED)}
    assert spread(chain, {"a": {"x"}})["c"] == {"b.a.x"}


def test_a_copy_that_kept_its_name_on_the_way_does_not_return_either() -> None:
    links = {"ab": link("a", "b", rename=PREFIXED), "bc": link("b", "c"), "ca": link("c", "a", rename=PREFIXED)}
    assert spread(links, {"a": {"x"}}) == {"a": {"x"}, "b": {"a.x"}, "c": {"a.x"}}


def test_links_that_keep_names_share_their_topics() -> None:
    links = {"there": link("east", "west"), "back": link("west", "east")}
    assert spread(links, {"east": {"x"}, "west": {"east.x"}}) == {"east": {"x", "east.x"}, "west": {"x", "east.x"}}


def test_a_topic_with_dots_is_no_copy_of_a_cluster_that_is_not_there() -> None:
    assert LinkNames(both()).copied(both()["back"], ["south.orders", "east.orders"]) == ["south.orders"]


def test_heartbeats_of_any_link_and_their_copies_are_no_data() -> None:
    links = {**both(), "other": link("east", "south", heartbeat_topic="pulse")}
    names = ["pulse", "east.pulse", "orders", "trueup-heartbeats", "east.trueup-heartbeats"]
    assert LinkNames(links).copied(links["back"], names) == ["orders"]


def test_dead_letters_of_any_link_and_their_copies_are_no_data() -> None:
    links = {**both(), "other": link("east", "south", failures="dead-letter")}
    names = ["orders.dead-letters", "south.orders.dead-letters", "west.orders.dead-letters", "orders"]
    assert LinkNames(links).copied(links["there"], names) == ["orders"]


def test_without_dead_letters_such_a_name_is_a_topic_as_any() -> None:
    assert LinkNames(both()).copied(both()["there"], ["orders.dead-letters"]) == ["orders.dead-letters"]


CLUSTERS = st.sampled_from("abc")
TEMPLATES = st.sampled_from(["{topic}", PREFIXED, "{topic}.copy", "backup-{topic}", "{source}-{topic}.{topic}"])
LINKS = st.lists(st.tuples(CLUSTERS, CLUSTERS, TEMPLATES).filter(lambda one: one[0] != one[1]), max_size=5)
ENDS = st.tuples(CLUSTERS, CLUSTERS).filter(lambda one: one[0] != one[1])


@settings(max_examples=50)
@given(LINKS)
def test_topics_do_not_multiply_whatever_the_links(chosen: list[tuple[str, str, str]]) -> None:
    links = {f"l{at}": link(source, to, rename=name) for at, (source, to, name) in enumerate(chosen)}
    seeds = {cluster: {"x"} for cluster in "abc"}
    assert spread(links, seeds, 7) == spread(links, seeds, 8)


@given(TEMPLATES, st.text("ab.{}", min_size=1), st.sampled_from(["a", "b.c"]))
def test_the_original_of_a_name_is_what_the_template_was_filled_with(template: str, topic: str, source: str) -> None:
    assert original(template, source, target_of(topic, template, "", source)) == topic


def test_a_circle_of_names_is_shown() -> None:
    links = {"there": link("west", "east"), "back": link("east", "west", rename="old.{topic}")}
    assert {name: shown(way) for name, way in LinkNames(links).circles().items()} == {
        "back": "x at west > x at east > old.x at west"
    }


@pytest.mark.parametrize("topics", [("orders",), (r"/pay\..*/",)])
def test_names_that_do_not_come_around_again_are_no_circle(topics: tuple[str, ...]) -> None:
    links = {"there": link("west", "east", topics), "back": link("east", "west", topics, rename="old.{topic}")}
    assert (LinkNames(links).circles(), LinkNames(both()).circles()) == ({}, {})


def all_ways(names: LinkNames, links: dict[str, LinkSettings], start: str) -> set[str]:
    """The last renaming links of all circles of topic x of a cluster, from every sequence of different links."""
    found, pending = set[str](), [(start, "x", tuple[str, ...]())]
    for cluster, topic, taken in pending:
        for name, one in links.items():
            if one.source != cluster or name in taken or not names.copied(one, [topic]):
                continue
            after, way = target_of(topic, one.rename, "", one.source), (*taken, name)
            if one.target != start:
                pending.append((one.target, after, way))
            elif after != "x" and accepted([links[each] for each in way], after):
                found.add(next(each for each in reversed(way) if links[each].rename != "{topic}"))
    return found


def accepted(way: Sequence[LinkSettings], topic: str) -> bool:
    """Whether these links, one after the other, also copy a topic."""
    for one in way:
        if not topics_of(one.topics, one.exclude, [topic], "trueup"):
            return False
        topic = target_of(topic, one.rename, "", one.source)
    return True


@settings(max_examples=200)
@given(st.lists(st.tuples(ENDS, TEMPLATES, st.sampled_from(["/.*/", "x", "/.*x/", "/x.*/"])), max_size=6))
def test_every_circle_of_names_is_found(chosen: list[tuple[tuple[str, str], str, str]]) -> None:
    links = {f"l{at}": link(*ends, (pattern,), rename=name) for at, (ends, name, pattern) in enumerate(chosen)}
    names = LinkNames(links)
    expected = {name for cluster in "abc" for name in all_ways(names, links, cluster)}
    assert expected <= names.circles({cluster: ["x"] for cluster in "abc"}).keys()


def test_circles_are_found_in_few_steps_however_many_links_there_are(monkeypatch: pytest.MonkeyPatch) -> None:
    spokes = [f"s{number}" for number in range(12)]
    links = {f"{spoke}-hub": link(spoke, "hub") for spoke in spokes} | {
        f"hub-{spoke}": link("hub", spoke) for spoke in spokes
    }
    links["hub-archive"] = link("hub", "archive", rename=PREFIXED)
    steps, copies = list[str](), LinkNames._copies

    def counted(names: LinkNames, one: LinkSettings, topic: str) -> bool:
        steps.append(topic)
        assert len(steps) <= 1_000
        return copies(names, one, topic)

    monkeypatch.setattr(LinkNames, "_copies", counted)
    assert LinkNames(links).circles() == {}


def problems(links: dict[str, dict[str, Any]]) -> list[str]:
    with pytest.raises(BadSettings) as raised:
        parse(
            {
                "kafka": {"east": {"bootstrap": "e:9092", "bit": 0}, "west": {"bootstrap": "w:9092", "bit": 1}},
                "links": links,
            }
        )
    return list(raised.value.problems)


def test_a_configuration_with_a_circle_of_names_is_refused() -> None:
    found = problems(
        {
            "there": {"source": "west", "target": "east", "topics": ["/.*/"]},
            "back": {"source": "east", "target": "west", "topics": ["/.*/"], "rename": "old.{topic}"},
        }
    )
    assert "x at west > x at east > old.x at west > ..." in found[0]


@pytest.mark.parametrize(
    ("named", "why"),
    [
        ("east.orders", "orders at east > east.orders at west"),
        ("pulse", "heartbeats of links.there"),
        ("east.pulse", "heartbeats of links.there"),
        ("x.dead-letters", "dead letters of links.there"),
    ],
)
def test_a_copy_and_what_is_no_data_cannot_be_named(named: str, why: str) -> None:
    there = {"source": "east", "target": "west", "topics": ["orders"], "rename": PREFIXED, "heartbeat_topic": "pulse"}
    back = {"source": "west", "target": "east", "topics": ["bills", named], "rename": PREFIXED}
    (found,) = problems({"there": {**there, "failures": "dead-letter"}, "back": back})
    assert (found.startswith("links.back.topics"), why in found) == (True, True)
