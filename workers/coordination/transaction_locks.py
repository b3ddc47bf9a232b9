"""A lock by name that is released with the transaction, for state that no single row represents."""

from django.db import connection


def lock_until_commit(name: str) -> None:
    """Wait until no other transaction holds the name, then hold it until this transaction ends.

    On SQLite, a transaction has the write lock of the whole database from its start (settings: IMMEDIATE).
    """
    if connection.vendor == "postgresql":
        with connection.cursor() as cursor:
            cursor.execute("SELECT pg_advisory_xact_lock(hashtext(%s))", [name])
