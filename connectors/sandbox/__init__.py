"""Real servers for experiments, tests and the embedded journal: locked jars, plain processes, no fixed ports."""
