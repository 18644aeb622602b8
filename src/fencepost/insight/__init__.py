"""Inspection of Fencepost and of Apache Kafka: files, transactions, lag and causes.

The online parts use only the wire protocol, as any client does; the offline parts read the files of a data directory
and never write to it. Nothing here imports the broker.
"""
