"""The command line: one module for each group of commands. Nothing here imports Spark before it is needed."""
