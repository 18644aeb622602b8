"""Seeing inside: files, transactions, lag and causes, of Fencepost and of Apache Kafka.

Online parts see a broker only through the wire, as any client does; offline parts read the files of a data directory
and never write. Nothing here imports a broker.
"""
