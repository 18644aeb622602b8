"""Consume, transform, produce, commit: real clients' loops under kill -9 of clients and broker, exactly once."""
