"""Control pools of worker hosts every 2 s, also on existing plants, unless somebody has changed the interval."""

from django.apps.registry import Apps
from django.db import migrations
from django.db.backends.base.schema import BaseDatabaseSchemaEditor

ADDED = {"probe_seconds": 120.0, "patience": 15}


def decide_sooner(apps: Apps, schema_editor: BaseDatabaseSchemaEditor) -> None:
    for loop in apps.get_model("workers", "Loop").objects.filter(law="concurrency", interval_seconds=5):
        if "host" in loop.target:
            loop.interval_seconds, loop.parameters = 2, {**ADDED, **loop.parameters}
        else:
            loop.parameters = {"probe_seconds": ADDED["probe_seconds"], **loop.parameters}
        loop.save(update_fields=["interval_seconds", "parameters"])


class Migration(migrations.Migration):
    dependencies = [("workers", "0038_remove_tuning")]
    operations = [migrations.RunPython(decide_sooner, migrations.RunPython.noop)]
