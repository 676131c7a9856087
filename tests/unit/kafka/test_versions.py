"""kafka-python's classes of responses exist before threads use them."""

from kafka.protocol.api_header import ResponseClassRegistry

from trueup.connectors.kafka.client.versions import MADE, make


def test_no_class_of_a_response_is_made_by_a_request() -> None:
    responses = [each[None] for each in ResponseClassRegistry._response_class_registry.values()]
    missing = [
        (each.__name__, version)
        for each in responses
        for version in range(each.min_version, each.max_version + 1)
        if version not in each._VERSIONS
    ]
    assert (missing, MADE > 200) == ([], True)


def test_the_registered_class_remains_when_classes_are_made_again() -> None:
    before = {key: each.__name__ for key, each in ResponseClassRegistry._response_class_registry.items()}
    make()
    assert {key: each.__name__ for key, each in ResponseClassRegistry._response_class_registry.items()} == before
