"""Changes of a database under faults, against an auditor: PostgreSQL's own test_decoding on a slot of its own."""
