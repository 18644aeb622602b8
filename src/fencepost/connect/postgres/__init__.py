"""PostgreSQL as a source, by logical replication. Needs the extra `postgres`.

from fencepost.connect.postgres import Outbox, PostgresSource

shop = PostgresSource("shop", "postgresql://capture@db/shop", tables=["public.orders"])
"""

try:
    import psycopg  # noqa: F401 - said here, and not by whichever module comes first
except ImportError as error:
    from fencepost.connect.errors import ConnectError

    raise ConnectError(f"PostgreSQL needs psycopg: {error}", "pip install 'fencepost[postgres]'") from None

from fencepost.connect.postgres.shapes import Outbox
from fencepost.connect.postgres.source import PostgresSource

__all__ = ["Outbox", "PostgresSource"]
