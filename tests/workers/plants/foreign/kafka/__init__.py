"""Kafka consumer groups, beside real brokers and recorded answers."""
