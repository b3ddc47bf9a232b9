"""Schedules of tasks that are paused together."""

from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [("workers", "0048_retry_plans")]
    operations = [
        migrations.AddField(
            model_name="task", name="is_paused", field=models.BooleanField(db_default=False, default=False)
        )
    ]
