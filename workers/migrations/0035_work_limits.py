"""What limits and shares of batch work are counted by, and whose values an experiment's trace has."""

from django.apps.registry import Apps
from django.db import migrations, models
from django.db.backends.base.schema import BaseDatabaseSchemaEditor


def mark_scopes_unknown(apps: Apps, schema_editor: BaseDatabaseSchemaEditor) -> None:
    """The queue of an earlier trace was not recorded: only people without a limit of queues read it."""
    apps.get_model("workers", "Experiment").objects.filter(trace__isnull=False).update(queues=None)


class Migration(migrations.Migration):
    dependencies = [("workers", "0034_silences_of_integrity")]

    operations = [
        migrations.AddField("chunk", "spent_seconds", models.FloatField(default=0.0)),
        migrations.AddField("chunk", "yields", models.PositiveSmallIntegerField(default=0)),
        migrations.AddField("experiment", "queues", models.JSONField(default=list, null=True)),
        migrations.RunPython(mark_scopes_unknown, migrations.RunPython.noop),
    ]
