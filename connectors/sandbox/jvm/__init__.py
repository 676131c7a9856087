"""JVMs as child processes: Java, locked jars, ports, readiness checks."""
