"""`manage.py database_roles NAME`: grant a PostgreSQL role what the console or its workers need.

The owner of the tables migrates. All other processes use roles that own nothing: they read and write rows, but they
can't change the schema, drop a trigger, or alter the audit.

- The console's role reads and writes all rows; of the audit it adds rows only.
- A role for workers (`--workers`) writes the plant and its history, but no account, token or audit entry.
  It can't read sessions, second factors, failed logins, and answers that are kept for repeated forms.

Run the command after each `migrate`, with DATABASE_URL naming the owner. You can run it again. It creates a role that
doesn't exist. The variable that --password-environment names holds the password.
"""

import re
from collections.abc import Iterable
from typing import Any

from django.core.management.base import CommandParser
from django.db import connection, transaction
from django.db.backends.utils import CursorWrapper
from psycopg import sql

from common import environment as variables
from common.errors import BadInput
from console.management.one_line import OneLineCommand
from console.storage import worker_tables
from console.storage.append_only import TABLE

NAME = re.compile(r"[a-z_][a-z0-9_]{0,62}\Z")
# The application reads them; only the owner's migrations write them.
READ_ONLY = ("django_migrations",)
APPENDED = (TABLE,)


class Command(OneLineCommand):
    help = "Grant a PostgreSQL role the rights that the console needs, or with --workers, its workers."

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("role", help="role name; created if it does not exist")
        parser.add_argument(
            "--password-environment", default="", metavar="NAME", help="environment variable with the password"
        )
        parser.add_argument(
            "--workers",
            action="store_true",
            help="for observer, alerter, beat, and workers: can't write accounts, tokens, or the audit log",
        )
        parser.add_argument("--dry-run", action="store_true", help="print the statements, without a password")

    def handle(self, *args: object, **options: Any) -> None:
        try:
            statements = self._build_statements(options["role"], options["password_environment"], options["workers"])
        except BadInput as error:
            self.stderr.write(str(error))
            raise SystemExit(2) from None
        if not options["dry_run"]:
            with transaction.atomic(), connection.cursor() as cursor:
                for statement in statements:
                    cursor.execute(statement)
            may = "read and write what workers need" if options["workers"] else "use the tables"
            audit = "only read rows" if options["workers"] else "only read and add rows"
            self.stdout.write(f"{options['role']} may {may}; in {TABLE} it may {audit}.")
            return
        for statement in statements:
            text = statement.as_string(connection.connection)
            self.stdout.write(re.sub(r"PASSWORD '.*'", "PASSWORD '…'", text))

    def _build_statements(self, role: str, variable: str, for_workers: bool) -> list[sql.Composed]:
        if connection.vendor != "postgresql":
            raise BadInput(variables.DATABASE_URL.name, "is not a PostgreSQL address. SQLite has no roles.")
        if not NAME.match(role):
            raise BadInput("role", "must be 1 to 63 lowercase letters, digits, or _, and not start with a digit.")
        with connection.cursor() as cursor:
            cursor.execute("SELECT current_user, current_database()")
            owner, database = cursor.fetchone()
            cursor.execute("SELECT 1 FROM pg_roles WHERE rolname = %s", [role])
            known = cursor.fetchone() is not None
            if role == owner:
                raise BadInput("role", f"{role} owns the tables. Use another role for the application.")
            if known:
                _check_no_other_rights(cursor, role)
        granted = ["GRANT USAGE, SELECT ON ALL SEQUENCES IN SCHEMA public TO {name}"]
        if for_workers:
            hidden, written = (
                worker_tables.list_tables_by_access(access) for access in (worker_tables.HIDDEN, worker_tables.WRITTEN)
            )
            granted.append("GRANT SELECT ON ALL TABLES IN SCHEMA public TO {name}")
            granted += [f"REVOKE SELECT ON {table} FROM {{name}}" for table in hidden]
            granted += [f"GRANT INSERT, UPDATE, DELETE ON {table} TO {{name}}" for table in written]
        else:
            granted.append("GRANT SELECT, INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA public TO {name}")
            granted += [f"REVOKE UPDATE, DELETE ON {table} FROM {{name}}" for table in APPENDED]
            granted += [f"REVOKE INSERT, UPDATE, DELETE ON {table} FROM {{name}}" for table in READ_ONLY]
        parts = {"name": sql.Identifier(role), "database": sql.Identifier(database)}
        rights = [sql.SQL(statement).format(**parts) for statement in (*_build_revocations(), *granted)]
        return [*_create_role(role, known, variable), *rights]


def _check_no_other_rights(cursor: CursorWrapper, role: str) -> None:
    """Raise `BadInput` for a role with rights that no REVOKE removes: another role's, or an owner's."""
    cursor.execute(
        "SELECT granted.rolname FROM pg_auth_members JOIN pg_roles AS granted ON granted.oid = roleid"
        " JOIN pg_roles AS member ON member.oid = member WHERE member.rolname = %s ORDER BY 1",
        [role],
    )
    if granted := [name for (name,) in cursor.fetchall()]:
        first = f"REVOKE {granted[0]} FROM {role}"
        raise BadInput("role", f"{role} is a member of {', '.join(granted)} and has its rights. Run {first} first.")
    cursor.execute(
        "SELECT relname FROM pg_class WHERE relowner = %(role)s::regrole AND relname = ANY(%(tables)s)"
        " UNION SELECT proname FROM pg_proc WHERE proowner = %(role)s::regrole"
        " AND pronamespace = 'public'::regnamespace"
        " UNION SELECT datname FROM pg_database"
        " WHERE datdba = %(role)s::regrole AND datname = current_database()"
        " UNION SELECT nspname FROM pg_namespace WHERE nspowner = %(role)s::regrole AND nspname = 'public'"
        " ORDER BY 1",
        {"role": role, "tables": sorted(worker_tables.list_table_access())},
    )
    if owned := [name for (name,) in cursor.fetchall()]:
        more = f" and {len(owned) - 1} more" if len(owned) > 1 else ""
        raise BadInput(
            "role",
            f"{role} owns {owned[0]}{more}, so it can drop the audit log's triggers. Run ALTER … OWNER TO"
            " the role that migrates, or use another role.",
        )


def _create_role(role: str, known: bool, variable: str) -> list[sql.Composed]:
    name = sql.Identifier(role)
    made = [] if known else [sql.SQL("CREATE ROLE {} LOGIN").format(name)]
    plain = "ALTER ROLE {} NOSUPERUSER NOCREATEDB NOCREATEROLE NOREPLICATION NOBYPASSRLS"
    made.append(sql.SQL(plain).format(name))
    if variable:
        password = variables.read_secret(variable)
        if not password:
            raise BadInput("--password-environment", f"names {variable}, which is not set.")
        made.append(sql.SQL("ALTER ROLE {} PASSWORD {}").format(name, sql.Literal(password)))
    return made


def _build_revocations() -> Iterable[str]:
    """Take every right first, so that an earlier grant does not stay."""
    for what in ("TABLES", "SEQUENCES"):
        yield f"REVOKE ALL ON ALL {what} IN SCHEMA public FROM {{name}}"
    yield "REVOKE CREATE ON SCHEMA public FROM PUBLIC"
    yield "REVOKE ALL ON SCHEMA public FROM {name}"
    yield "REVOKE ALL ON DATABASE {database} FROM {name}"
    yield "GRANT CONNECT, TEMPORARY ON DATABASE {database} TO {name}"
    yield "GRANT USAGE ON SCHEMA public TO {name}"
    for table in APPENDED:
        yield f"REVOKE UPDATE, DELETE, TRUNCATE ON {table} FROM PUBLIC"
    for table in READ_ONLY:
        yield f"REVOKE INSERT, UPDATE, DELETE ON {table} FROM PUBLIC"
