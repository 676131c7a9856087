"""RocketMQ: a client of its remoting protocol, the formats of its messages, and its clusters as ends of links."""
