"""Clients that confluent-kafka refuses to make."""

import pytest
from confluent_kafka import KafkaError, KafkaException

from trueup.connectors.kafka.client.options import client_errors
from trueup.state.common.errors import Stop


def test_a_client_that_is_refused_is_an_error_of_its_cluster() -> None:
    with pytest.raises(Stop, match=r"a client of west; found ssl.key.location.*check the files"), client_errors("west"):
        raise KafkaException(KafkaError(KafkaError._INVALID_ARG, "ssl.key.location: key values mismatch"))
