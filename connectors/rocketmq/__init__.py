"""RocketMQ: a client of its remoting protocol, and the formats of its messages."""
