"""The audit log in the database: rows are added, and no statement changes, replaces, or removes one.

Triggers reject it, so that neither an error in the code nor a person at the database's prompt changes the past by
accident. If somebody drops them first, the chain shows it (`console.audit.chain`), as it shows a missing trigger.
SQLite and PostgreSQL; other databases are rejected.

On SQLite a migration that alters the table creates it again, without its triggers: it releases first, and protects
again at its end.
"""

from django.db.backends.utils import CursorWrapper

TABLE = "console_auditentry"
REFUSAL = "The audit log is append-only."

_SQLITE = {
    f"{TABLE}_{verb}": (
        f"CREATE TRIGGER {TABLE}_{verb} BEFORE {verb} ON {TABLE} BEGIN SELECT RAISE(ABORT, '{REFUSAL}'); END"
    )
    for verb in ("update", "delete")
}
# INSERT OR REPLACE removes the conflicting row, and fires no delete trigger for it.
_SQLITE[f"{TABLE}_replace"] = (
    f"CREATE TRIGGER {TABLE}_replace BEFORE INSERT ON {TABLE} "
    f"WHEN EXISTS (SELECT 1 FROM {TABLE} WHERE id = NEW.id OR sequence = NEW.sequence) "
    f"BEGIN SELECT RAISE(ABORT, '{REFUSAL}'); END"
)
_POSTGRESQL = (
    f"CREATE FUNCTION {TABLE}_refuse() RETURNS trigger LANGUAGE plpgsql AS "
    f"$$ BEGIN RAISE EXCEPTION '{REFUSAL}'; END $$",
    f"CREATE TRIGGER {TABLE}_rows BEFORE UPDATE OR DELETE ON {TABLE} FOR EACH ROW EXECUTE FUNCTION {TABLE}_refuse()",
    f"CREATE TRIGGER {TABLE}_whole BEFORE TRUNCATE ON {TABLE} FOR EACH STATEMENT EXECUTE FUNCTION {TABLE}_refuse()",
)


def protect(vendor: str) -> tuple[str, ...]:
    """Return the statements that protect the table. Raises `KeyError` for an unsupported database."""
    return {"sqlite": tuple(_SQLITE.values()), "postgresql": _POSTGRESQL}[vendor]


def release(vendor: str) -> tuple[str, ...]:
    """Return the statements that remove the protection."""
    postgresql = (
        f"DROP TRIGGER {TABLE}_whole ON {TABLE}",
        f"DROP TRIGGER {TABLE}_rows ON {TABLE}",
        f"DROP FUNCTION {TABLE}_refuse()",
    )
    sqlite = tuple(f"DROP TRIGGER IF EXISTS {name}" for name in _SQLITE)
    return {"sqlite": sqlite, "postgresql": postgresql}[vendor]


def list_missing(vendor: str, cursor: CursorWrapper) -> list[str]:
    """Return the triggers that are missing or disabled."""
    if vendor == "sqlite":
        cursor.execute("SELECT name FROM sqlite_master WHERE type = 'trigger' AND tbl_name = %s", [TABLE])
        wanted = set(_SQLITE)
    else:
        cursor.execute("SELECT tgname FROM pg_trigger WHERE tgrelid = %s::regclass AND tgenabled <> 'D'", [TABLE])
        wanted = {f"{TABLE}_whole", f"{TABLE}_rows"}
    return sorted(wanted - {name for (name,) in cursor.fetchall()})
