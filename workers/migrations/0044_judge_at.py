"""When the effect of an action can be judged, so that a tick reads only the actions that are due."""

from datetime import timedelta
from typing import Any

from django.db import migrations, models


def note_settling_times(apps: Any, _: Any) -> None:
    entries = apps.get_model("workers", "LedgerEntry").objects
    checking = entries.filter(verdict="checking", expected__isnull=False)
    for pk, at, expected in list(checking.values_list("pk", "at", "expected")):
        entries.filter(pk=pk).update(judge_at=at + timedelta(seconds=expected["within_seconds"]))


class Migration(migrations.Migration):
    dependencies = [("workers", "0043_present_failure")]
    operations = [
        migrations.AddField("ledgerentry", "judge_at", models.DateTimeField(default=None, null=True)),
        migrations.AddIndex(
            "ledgerentry",
            models.Index(fields=["judge_at"], condition=models.Q(judge_at__isnull=False), name="ledger_unjudged"),
        ),
        migrations.RunPython(note_settling_times, migrations.RunPython.noop),
    ]
