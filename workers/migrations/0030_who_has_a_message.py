"""Of a receiver that is several: who has a message, so that a repetition is for the others."""

from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [("workers", "0029_loops_at_rest")]
    operations = [
        migrations.AddField("message", "reached", models.JSONField(default=None, null=True)),
    ]
