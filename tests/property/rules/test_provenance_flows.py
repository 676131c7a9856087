"""Records reach every cluster once over links and never return, by producer ids and by headers; and the check."""

from collections import Counter
from itertools import pairwise, permutations

from hypothesis import given
from hypothesis import strategies as st

from trueup.connectors.contract import Endpoint
from trueup.connectors.replication.headers import Path
from trueup.state.replication.provenance import SINGLE, WHOLE, onward, path_with, producer_id, tag_of, tokens_in
from trueup.state.replication.topology import LinkRoute, doubled

sizes = st.integers(2, 6)
paths, writer_ids = st.integers(0, 2**32 - 1), st.integers(0, 2**16 - 1)


def links(pairs, forward=True):
    return [LinkRoute(f"{a}-{b}", str(a), str(b), forward, {"t": "t"}) for a, b in pairs]


def ring(n):
    return links([(at, (at + 1) % n) for at in range(n)])


def both_ways(pairs, forward=True):
    return links([direction for a, b in pairs for direction in ((a, b), (b, a))], forward)


def chain(n):
    return both_ways(pairwise(range(n)))


def mesh(n, forward=False):
    return links(permutations(range(n), 2), forward)


trees = sizes.flatmap(
    lambda n: st.tuples(*(st.integers(0, at - 1) for at in range(1, n))).map(
        lambda parents: both_ways((parent, at + 1) for at, parent in enumerate(parents))
    )
)
shapes = st.one_of(sizes.map(ring), sizes.map(chain), sizes.map(mesh), trees, st.just(both_ways([(0, 1)])))


def by_bits(origin, routes):
    """Arrivals of a record at each cluster, with its path encoded in producer ids only."""
    arrived, going = Counter(), [(origin, -1)]
    while going:
        at, producer = going.pop()
        tag = tag_of(producer)
        for route in routes:
            if route.source == at:
                path = onward(tag.path if tag else None, int(route.source), int(route.target), route.forward)
                if path is not None:
                    arrived[route.target] += 1
                    going.append((route.target, producer_id(path, 7)))
    return arrived


def by_tokens(origin, routes):
    """Arrivals of a record at each cluster, with its path encoded in headers."""
    arrived, going = Counter(), [(origin, None)]
    while going:
        at, header = going.pop()
        for route in routes:
            if route.source == at:
                ends = (Endpoint("", "", int(end)) for end in (route.source, route.target))
                path = Path(*ends, route.forward).onward(header)
                if path is not None:
                    arrived[route.target] += 1
                    going.append((route.target, path))
    return arrived


def clusters(routes):
    return {end for route in routes for end in (route.source, route.target)}


@given(shapes)
def test_every_record_reaches_every_other_cluster_once_and_never_comes_back(routes):
    for origin in clusters(routes):
        once = dict.fromkeys(clusters(routes) - {origin}, 1)
        assert by_bits(origin, routes) == by_tokens(origin, routes) == once


@given(shapes)
def test_the_check_finds_nothing_wrong_with_these(routes):
    assert list(doubled(routes)) == []


@given(st.integers(3, 5))
def test_the_check_reports_the_duplicates_of_a_forwarding_mesh(n):
    routes = mesh(n, forward=True)
    assert max(by_bits("0", routes).values()) > 1
    assert len(list(doubled(routes))) == n * (n - 1)


any_links = st.lists(
    st.tuples(st.integers(0, 3), st.integers(0, 3), st.booleans()).filter(lambda link: link[0] != link[1]), max_size=8
).map(lambda found: [LinkRoute(f"l{i}", str(a), str(b), fwd, {"t": "t"}) for i, (a, b, fwd) in enumerate(found)])


@given(any_links)
def test_the_check_reports_a_place_where_records_arrive_twice_whenever_there_is_one(routes):
    twice = {(origin, at) for origin in clusters(routes) for at, n in by_bits(origin, routes).items() if n > 1}
    found = {(double.origin[0], double.at[0]) for double in doubled(routes)}
    assert found <= twice
    assert {origin for origin, _ in found} == {origin for origin, _ in twice}


@given(any_links)
def test_no_record_comes_back_over_any_links(routes):
    assert [origin for origin in clusters(routes) if origin in by_bits(origin, routes)] == []


@given(any_links)
def test_headers_and_producer_ids_agree(routes):
    assert all(by_bits(origin, routes) == by_tokens(origin, routes) for origin in clusters(routes))


@given(paths, writer_ids, st.sampled_from([WHOLE, *SINGLE]))
def test_a_tag_is_what_was_written(path, writer_id, mark):
    assert tag_of(producer_id(path, writer_id, mark)) == (path, writer_id, mark == WHOLE)


@given(paths, st.dictionaries(st.sampled_from("abcdef"), st.integers(0, 31)))
def test_tokens_of_a_path_give_its_bits(path, bits):
    assert path_with(tokens_in(path, bits)) == path


@given(st.integers(-(2**63), 2**63 - 1))
def test_a_producer_id_is_ours_only_if_we_could_have_made_it(producer):
    tag = tag_of(producer)
    assert tag is None or producer_id(tag.path, tag.writer_id, producer >> 48) == producer
