"""Kafka's metadata records, the image that they add up to, and the files that keep them."""
