"""The comparison of the database's migrations with those of this version of Weir."""

from django.db import connection
from django.db.migrations.loader import MigrationLoader

OURS = ("console", "queues", "workers")


def list_newer_migrations() -> list[str]:
    """Migrations of ours that the database has and this code has not, as console.0009_…; [] for none."""
    loader = MigrationLoader(connection)
    unknown = set(loader.applied_migrations) - set(loader.disk_migrations)
    return sorted(f"{app}.{name}" for app, name in unknown if app in OURS)
