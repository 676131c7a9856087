"""Settings of RocketMQ clusters."""
