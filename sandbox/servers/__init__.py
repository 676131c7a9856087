"""The servers that the sandbox starts."""
