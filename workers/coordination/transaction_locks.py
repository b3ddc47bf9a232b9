"""A lock by name that ends with the transaction, for what no single row stands for."""

from django.db import connection


def lock_until_commit(name: str) -> None:
    """Wait until no other transaction holds the name, then hold it until this one ends. On SQLite a
    transaction has the write lock of the whole database from its beginning (settings: IMMEDIATE).
    """
    if connection.vendor == "postgresql":
        with connection.cursor() as cursor:
            cursor.execute("SELECT pg_advisory_xact_lock(hashtext(%s))", [name])
