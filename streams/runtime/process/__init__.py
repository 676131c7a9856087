"""The process of the application: its lock, disk and clock, waits at its start, and its end."""
