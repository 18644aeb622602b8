"""The names of the topics in which a cluster keeps its own state: their one home, which every package may import."""

CONSUMER_OFFSETS = "__consumer_offsets"
"""Committed offsets and consumer groups."""
TRANSACTION_STATE = "__transaction_state"
"""What the transaction coordinators remember of each transactional id."""
CLUSTER_METADATA = "__cluster_metadata"
"""The metadata log of Apache Kafka's controllers, which no client can read."""
INTERNAL_TOPICS = frozenset({CONSUMER_OFFSETS, TRANSACTION_STATE})
"""Those that coordinators keep and clients may read, but not write."""
