"""Connections, routes, messages, topics, groups and rights of RocketMQ clusters."""
