"""Real servers for experiments, tests and the embedded journal: locked jars, plain processes, dynamic ports."""
