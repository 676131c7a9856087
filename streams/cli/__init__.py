"""The command line, one module per group of commands. Spark is imported only when it is needed."""
