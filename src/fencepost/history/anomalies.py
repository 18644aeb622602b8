"""The anomalies that the checker detects, with their meaning. Names are those of Jepsen's Kafka workload where
possible."""

ANOMALIES: dict[str, str] = {
    "lost-write": "a value that was acknowledged is not where readers passed, or was read once and is gone",
    "unseen": "a value that was acknowledged is missing at the end of its partition after the final read",
    "duplicate": "one value stands at more than one offset of its partition",
    "inconsistent-offsets": "sends and polls disagree about which value stands at an offset",
    "phantom-read": "a value was read that nobody had sent to that partition",
    "aborted-read": "a read_committed reader saw a value of a transaction or send that failed (G1a)",
    "precommitted-read": "a read_committed reader saw a value before its transaction was asked to commit",
    "torn-transaction": "one value of a transaction was read, another that must be there was not",
    "write-read-cycle": "transactions have read each other's values in a circle (G1c)",
    "nonmonotonic-send": "a process's later send stands before its earlier one",
    "int-nonmonotonic-send": "within one operation a later send stands before an earlier one",
    "nonmonotonic-poll": "a process polled offsets it had already passed",
    "int-nonmonotonic-poll": "within one operation polled offsets go backwards or repeat",
    "poll-skip": "between two polls of a process lie values that it should have been given",
    "int-poll-skip": "within one operation polls passed over values that should have been given",
    "offsets-without-outputs": "a transaction's offsets count, but its outputs are not there, or it was aborted",
    "outputs-without-offsets": "a transaction's outputs count, but its offsets do not",
    "phantom-offset": "a group's committed offset is one that nobody committed",
    "lost-offset-commit": "offsets whose commit was acknowledged are not there",
    "zombie-commit": "a producer committed after another had taken over its transactional id",
}
