"""Experiments that reproduce a table or figure of a paper: their runs, several seeds, and confidence bands."""

from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [("workers", "0035_work_limits")]

    operations = [
        migrations.AddField("experiment", "figure", models.CharField(blank=True, default="", max_length=60)),
        migrations.AddField("experiment", "runs", models.JSONField(default=dict)),
        migrations.AddField("experiment", "seeds", models.PositiveSmallIntegerField(default=1)),
        migrations.AddField("experimentresult", "bands", models.JSONField(default=dict)),
    ]
