"""Connections, metadata and groups of Kafka clusters.

Two libraries are used: kafka-python for administration and for opening connections, and Trueup's own requests on the
sockets where neither library offers what a copy needs (topic ids, producer ids).

- ``connection``: a connection that kafka-python opened (TLS, SASL), then requests as bytes.
- ``cluster``: one cluster for a copier: the leaders of partitions, and requests to them.
- ``fetch_produce``, ``topic_ids``: Fetch and Produce as bytes; with topic ids, a broker refuses a recreated topic.
- ``admin``, ``metadata``, ``group_offsets``: blocking calls with Trueup's errors.
- ``kafka_python``, ``versions``: corrections of the library, each with its reason.
- ``options``, ``security``, ``oauth``: one vocabulary of settings for both libraries.

What must stay: every error of a broker becomes `Retry`, `Stop` or `Unknown` here, and no error contains a secret.
"""
