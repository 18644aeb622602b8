"""Copiers: one program per client library that runs a loop until standard input closes or somebody kills it.

Each takes one argument, a plan as JSON, and prints `committed`, `aborted` and `recreated` as JSON lines. Each handles
errors as its library's documentation says: what can be aborted is aborted and the consumer goes back to the committed
position, what cannot leads to a new producer.
"""
