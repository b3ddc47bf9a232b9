"""Of an alert: what was said of it, and of its impact, when it stood at its worst."""

from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [("workers", "0031_folded_entries")]
    operations = [
        migrations.AddField("alert", "worst_sentence", models.TextField(blank=True, db_default="", default="")),
        migrations.AddField("alert", "worst_impact", models.TextField(blank=True, db_default="", default="")),
    ]
