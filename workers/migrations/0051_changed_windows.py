"""Planned windows that were changed, and their former versions."""

import django.db.models.deletion
from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [("workers", "0050_offset_reset_plans")]
    operations = [
        migrations.AddField(
            model_name="plannedwindow", name="version", field=models.PositiveIntegerField(db_default=1, default=1)
        ),
        migrations.AddField(
            model_name="plannedwindow", name="changed_at", field=models.DateTimeField(default=None, null=True)
        ),
        migrations.AddField(
            model_name="plannedwindow",
            name="successor",
            field=models.ForeignKey(
                null=True,
                on_delete=django.db.models.deletion.CASCADE,
                related_name="former_versions",
                to="workers.plannedwindow",
            ),
        ),
    ]
