"""Real servers for experiments, tests and demos, and their commands. No product code depends on it."""
