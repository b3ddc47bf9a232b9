"""Of an on-call calendar: the events that could not be read."""

from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [("workers", "0032_alerts_at_their_worst")]
    operations = [
        migrations.AddField("oncallfeed", "broken", models.JSONField(db_default=[], default=list)),
    ]
