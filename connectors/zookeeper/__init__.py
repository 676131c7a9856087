"""ZooKeeper below every connector that needs it: recursive watches, bulk reads, cheap resynchronisation."""
