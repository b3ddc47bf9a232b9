"""The audit in the database: rows are added, and no statement changes or removes one.

Triggers refuse it, so that neither a mistake in the code nor a person at the database's prompt edits the past
unnoticed: whoever wants to must drop them first. SQLite and PostgreSQL; other databases are refused.
"""

TABLE = "console_auditentry"
REFUSAL = "The audit is append-only."

_SQLITE = {
    f"{TABLE}_{verb}": (
        f"CREATE TRIGGER {TABLE}_{verb} BEFORE {verb} ON {TABLE} BEGIN SELECT RAISE(ABORT, '{REFUSAL}'); END"
    )
    for verb in ("update", "delete")
}
_POSTGRESQL = (
    f"CREATE FUNCTION {TABLE}_refuse() RETURNS trigger LANGUAGE plpgsql AS "
    f"$$ BEGIN RAISE EXCEPTION '{REFUSAL}'; END $$",
    f"CREATE TRIGGER {TABLE}_rows BEFORE UPDATE OR DELETE ON {TABLE} "
    f"FOR EACH ROW EXECUTE FUNCTION {TABLE}_refuse()",
    f"CREATE TRIGGER {TABLE}_whole BEFORE TRUNCATE ON {TABLE} "
    f"FOR EACH STATEMENT EXECUTE FUNCTION {TABLE}_refuse()",
)


def protect(vendor: str) -> tuple[str, ...]:
    """The statements that protect the table. Raises KeyError for a database they are not written for."""
    return {"sqlite": tuple(_SQLITE.values()), "postgresql": _POSTGRESQL}[vendor]


def release(vendor: str) -> tuple[str, ...]:
    """The statements that take the protection back."""
    postgresql = (
        f"DROP TRIGGER {TABLE}_whole ON {TABLE}",
        f"DROP TRIGGER {TABLE}_rows ON {TABLE}",
        f"DROP FUNCTION {TABLE}_refuse()",
    )
    return {"sqlite": tuple(f"DROP TRIGGER {name}" for name in _SQLITE), "postgresql": postgresql}[vendor]
