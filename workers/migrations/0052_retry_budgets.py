"""The destination that the tasks of a retry plan call. The plan draws on its retry budget."""

from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [("workers", "0051_changed_windows")]
    operations = [
        migrations.AddField(
            model_name="retryplan",
            name="calls",
            field=models.CharField(blank=True, db_default="", default="", max_length=120),
        )
    ]
