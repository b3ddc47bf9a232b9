"""Saved filters of the task history."""

from django.db import migrations, models

PAGES = [
    ("ledger", "Ledger"),
    ("loops", "Loops"),
    ("queues", "Queues"),
    ("nodes", "Nodes"),
    ("workers", "Workers"),
    ("dead-letters", "Dead Letters"),
    ("audit", "Audit"),
    ("task-history", "Task History"),
]


class Migration(migrations.Migration):
    dependencies = [("console", "0018_passkey")]
    operations = [
        migrations.AlterField(
            model_name="savedfilter", name="page", field=models.CharField(choices=PAGES, max_length=20)
        )
    ]
