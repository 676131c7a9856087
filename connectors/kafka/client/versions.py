"""Makes kafka-python's classes of all versions of all responses at import, by one thread.

kafka-python 3.0 makes such a class when a version is used first, and registers it as the class of its response with a
weak reference (kafka/protocol/api_message.py). If two threads make the class of one version, the registered one may be
the one that is dropped: every later response of this kind then fails with `ReferenceError`, until the process ends.
"""

import kafka.admin  # noqa: F401 - imports, and so registers, all responses
from kafka.protocol.api_header import ResponseClassRegistry


def make() -> int:
    """Make the classes that are missing; returns the number of classes."""
    responses = [*ResponseClassRegistry._response_class_registry.values()]
    classes = [
        response[version] for response in responses for version in range(response.min_version, response.max_version + 1)
    ]
    return len(classes)


MADE = make()
"""The number of classes."""
