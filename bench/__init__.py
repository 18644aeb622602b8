"""Fencepost and Apache Kafka side by side: `python -m bench` prints one table of paired ratios.

The package sees both brokers only through the wire and `/proc`; it imports nothing of `fencepost`.
"""
