"""Servers as child processes on this machine, such as the broker of the embedded journal: Java, locked jars, ports."""
