"""The Spark session, its queries, and what its Python processes run."""
