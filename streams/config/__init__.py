"""The settings file: read, checked, and its live keys."""
