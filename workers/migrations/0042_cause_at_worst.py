"""The cause of an incident as the headline named it when the alert was at its worst: the title of a resolved incident."""

from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [("workers", "0041_default_route")]
    operations = [migrations.AddField("alert", "worst_cause", models.TextField(blank=True, db_default="", default=""))]
