"""When an alert that came back fired the last time: the age of the present failure."""

from typing import Any

from django.db import migrations, models


def note_returns(apps: Any, _: Any) -> None:
    events = apps.get_model("workers", "AlertEvent").objects.filter(alert=models.OuterRef("pk"), kind="came back")
    returned = models.Subquery(events.order_by("-at").values("at")[:1])
    apps.get_model("workers", "Alert").objects.filter(came_back__gt=0).update(returned_at=returned)


class Migration(migrations.Migration):
    dependencies = [("workers", "0042_cause_at_worst")]
    operations = [
        migrations.AddField("alert", "returned_at", models.DateTimeField(default=None, null=True)),
        migrations.RunPython(note_returns, migrations.RunPython.noop),
    ]
