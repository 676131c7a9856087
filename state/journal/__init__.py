"""The topics of the journal: whether they are those of earlier runs, and keep their records."""
