"""What repairs need: the vote and the marks in ZooKeeper, and daemons that take marks."""
