"""Foreign programs the tests talk to: Apache Kafka, its tools, and the clients people use.

This package starts and stops them and turns what they print into values. It knows nothing of the
broker's inside: a broker is an address, a data directory, and start, stop and kill.
"""
