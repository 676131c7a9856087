"""The journal in Kafka: topics, schemas, rows in and out."""
