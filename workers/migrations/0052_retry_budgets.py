"""What the tasks of a retry plan call: the destination whose retry budget the plan draws on."""

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
