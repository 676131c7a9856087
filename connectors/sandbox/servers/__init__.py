"""Each kind of server that the sandbox starts."""
