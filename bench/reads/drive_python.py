"""Reads topics with Pulsar's Python client.

    python -m bench.reads.drive_python JOB.json

The job contains: service, loads (topic and messages each), and what `bench.reads.meter` needs.
"""

import json
import sys
from pathlib import Path
from typing import Any

import pulsar

from bench.reads.meter import Meter, tell_result

QUEUE = 10_000


def read(client: pulsar.Client, topic: str, messages: int, meter: Meter) -> None:
    """Read so many messages, and what readers usually look at. Prints the result."""
    size, first = 0, 0.0
    meter.begin()
    reader = client.create_reader(topic, pulsar.MessageId.earliest, receiver_queue_size=QUEUE)
    for number in range(messages):
        message = reader.read_next()
        if not number:
            first = meter.elapsed_s()
        size += len(message.data())
        message.partition_key(), message.publish_timestamp(), message.message_id()
    tell_result(meter.result(topic, messages, size), first)
    reader.close()


def main(job: dict[str, Any]) -> None:
    client = pulsar.Client(job["service"], logger=pulsar.ConsoleLogger(pulsar.LoggerLevel.Error))
    for topic, messages in job["loads"]:
        read(client, topic, messages, Meter(job))
    client.close()


if __name__ == "__main__":
    main(json.loads(Path(sys.argv[1]).read_text()))
