"""The running links: what each does in a batch, its tasks, and what it does beside copying."""
