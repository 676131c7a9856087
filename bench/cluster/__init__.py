"""A Spark cluster beside local mode."""
