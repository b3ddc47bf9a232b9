"""Saved filters of more lists."""

from django.db import migrations, models

PAGES = [
    ("ledger", "Ledger"),
    ("loops", "Loops"),
    ("queues", "Queues"),
    ("nodes", "Nodes"),
    ("workers", "Workers"),
    ("dead-letters", "Dead Letters"),
    ("audit", "Audit"),
]


class Migration(migrations.Migration):
    dependencies = [("console", "0016_user_preferences")]
    operations = [
        migrations.AlterField(
            model_name="savedfilter", name="page", field=models.CharField(choices=PAGES, max_length=20)
        )
    ]
