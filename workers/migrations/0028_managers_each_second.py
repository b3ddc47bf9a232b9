"""Managers decide each second: also those of a plant that has them already, unless somebody has changed it."""

from django.apps.registry import Apps
from django.db import migrations
from django.db.backends.base.schema import BaseDatabaseSchemaEditor


def each_second(apps: Apps, schema_editor: BaseDatabaseSchemaEditor) -> None:
    loops = apps.get_model("workers", "Loop").objects
    for loop in loops.filter(law="worker_rate", interval_seconds=2, parameters__interval_seconds=2):
        loop.interval_seconds, loop.parameters = 1, {**loop.parameters, "interval_seconds": 1}
        loop.save(update_fields=["interval_seconds", "parameters"])


class Migration(migrations.Migration):
    dependencies = [("workers", "0027_what_ends_soon")]
    operations = [migrations.RunPython(each_second, migrations.RunPython.noop)]
