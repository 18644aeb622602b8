"""The controller of a cluster as a pure state machine: requests and the time in, metadata records and answers out.

`machine.Controller` is the whole of it. What it decides stands in one module for each thing that it controls: `brokers`
(registration, heartbeats, fencing), `topics` and `placement`, `partitions` and `partition_change` (elections, in-sync
replicas, reassignment), `configs`, `features`, `acls`, `credentials`, `quotas` and `producer_ids`. They read `state`,
and nothing but a record that is applied changes what it holds of the cluster; what is not in records (heartbeats) is in
`heartbeats`. Answers and errors are those of Apache Kafka 4.3, code and text.
"""
