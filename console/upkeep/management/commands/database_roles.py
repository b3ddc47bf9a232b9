"""`manage.py database_roles NAME`: what the application's role may do in PostgreSQL; run by the owner.

The owner of the tables migrates; the console, its workers and the loops use another role, which owns nothing:
it reads and writes rows, but it can't change the schema or drop a trigger, and to the audit it only adds
(INSERT and SELECT, no UPDATE, DELETE or TRUNCATE). Run it after each `migrate`, with DATABASE_URL naming the
owner: it may run again. A role that is not there is made; its password comes from the environment variable
that --password-environment names (a role that is there gets it, too).
"""

import re
from typing import Any

from django.core.management.base import CommandParser
from django.db import connection, transaction
from psycopg import sql

from console.management.one_line import OneLineCommand
from console.storage.append_only import TABLE
from queues import environment as variables
from queues.errors import BadInput

NAME = re.compile(r"[a-z_][a-z0-9_]{0,62}\Z")
# The application reads them; only the owner's migrations write them.
READ_ONLY = ("django_migrations",)
APPENDED = (TABLE,)


class Command(OneLineCommand):
    help = "Grant a PostgreSQL role what the application needs: rows of all tables; of the audit, new ones."

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("role", help="the application's role; made when it is not there")
        parser.add_argument(
            "--password-environment", default="", metavar="NAME", help="the variable with its password"
        )
        parser.add_argument("--dry-run", action="store_true", help="print the statements, without a password")

    def handle(self, *args: Any, **options: Any) -> None:
        try:
            statements = self._statements(options["role"], options["password_environment"])
        except BadInput as error:
            self.stderr.write(str(error))
            raise SystemExit(2) from None
        if not options["dry_run"]:
            with transaction.atomic(), connection.cursor() as cursor:
                for statement in statements:
                    cursor.execute(statement)
            self.stdout.write(f"{options['role']} may use the tables; of {TABLE} it may read and add rows.")
            return
        for statement in statements:
            text = statement.as_string(connection.connection)
            self.stdout.write(re.sub(r"PASSWORD '.*'", "PASSWORD '…'", text))

    def _statements(self, role: str, variable: str) -> list[sql.Composed]:
        if connection.vendor != "postgresql":
            raise BadInput(variables.DATABASE_URL.name, "names no PostgreSQL; SQLite has no roles.")
        if not NAME.match(role):
            raise BadInput("role", "takes small letters, digits and _, at most 63, a letter first.")
        with connection.cursor() as cursor:
            cursor.execute("SELECT current_user, current_database()")
            owner, database = cursor.fetchone()
            cursor.execute("SELECT 1 FROM pg_roles WHERE rolname = %s", [role])
            known = cursor.fetchone() is not None
        if role == owner:
            raise BadInput("role", f"{role} owns the tables; the application's role is another.")
        return [*_made(role, known, variable), *_granted(role, owner, database)]


def _made(role: str, known: bool, variable: str) -> list[sql.Composed]:
    name = sql.Identifier(role)
    made = [] if known else [sql.SQL("CREATE ROLE {} LOGIN").format(name)]
    plain = "ALTER ROLE {} NOSUPERUSER NOCREATEDB NOCREATEROLE NOREPLICATION NOBYPASSRLS"
    made.append(sql.SQL(plain).format(name))
    if variable:
        password = variables.secret_named(variable)
        if not password:
            raise BadInput("--password-environment", f"names {variable}, which is not set.")
        made.append(sql.SQL("ALTER ROLE {} PASSWORD {}").format(name, sql.Literal(password)))
    return made


def _granted(role: str, owner: str, database: str) -> list[sql.Composed]:
    """Everything is taken first, so that an earlier grant does not stay."""
    name, tables = sql.Identifier(role), "ALL TABLES IN SCHEMA public"
    statements = [
        f"REVOKE ALL ON {tables} FROM {{name}}",
        "REVOKE CREATE ON SCHEMA public FROM PUBLIC",
        "GRANT CONNECT, TEMPORARY ON DATABASE {database} TO {name}",
        "GRANT USAGE ON SCHEMA public TO {name}",
        f"GRANT SELECT, INSERT, UPDATE, DELETE ON {tables} TO {{name}}",
        "GRANT USAGE, SELECT ON ALL SEQUENCES IN SCHEMA public TO {name}",
        *(f"REVOKE UPDATE, DELETE, TRUNCATE ON {table} FROM {{name}}, PUBLIC" for table in APPENDED),
        *(f"REVOKE INSERT, UPDATE, DELETE ON {table} FROM {{name}}, PUBLIC" for table in READ_ONLY),
        # A table that a handler makes is its own role's; what the owner makes later needs the next run.
    ]
    parts = {"name": name, "database": sql.Identifier(database), "owner": sql.Identifier(owner)}
    return [sql.SQL(statement).format(**parts) for statement in statements]
