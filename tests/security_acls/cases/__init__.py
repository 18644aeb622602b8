"""The cases of the matrix, by family."""

from tests.security_acls.cases import cluster, configs, groups, records, topics, transactions

__all__ = ["cluster", "configs", "groups", "records", "topics", "transactions"]
