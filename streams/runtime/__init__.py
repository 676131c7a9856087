"""What every stream runs on: the Spark session, the supervisor, metrics, logs, health."""
