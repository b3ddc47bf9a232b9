"""Loops that have nothing to decide write no entry a tick: when they wrote their last one."""

from django.apps.registry import Apps
from django.db import migrations, models
from django.db.backends.base.schema import BaseDatabaseSchemaEditor


def written_at_each_tick(apps: Apps, schema_editor: BaseDatabaseSchemaEditor) -> None:
    apps.get_model("workers", "Loop").objects.update(decided_at=models.F("ticked_at"))


class Migration(migrations.Migration):
    dependencies = [("workers", "0028_managers_each_second")]
    operations = [
        migrations.AddField("loop", "decided_at", models.DateTimeField(default=None, null=True)),
        migrations.AddField("loop", "at_rest", models.BooleanField(default=False)),
        migrations.RunPython(written_at_each_tick, migrations.RunPython.noop),
    ]
