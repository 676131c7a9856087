"""The ZooKeeper client for all connectors: recursive watches, bulk reads, fast resynchronisation."""
