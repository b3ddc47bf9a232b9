"""A default route by severity and team. Rules that notify the open consoles, as they were shipped, follow it from now on,
and the consoles take critical alerts and warnings: nobody gets more or less than before.
"""

from django.apps.registry import Apps
from django.db import migrations, models
from django.db.backends.base.schema import BaseDatabaseSchemaEditor

SHIPPED = [{"after_minutes": 0, "receivers": ["consoles"]}]
SEVERITIES = ["critical", "warning"]


def follow(apps: Apps, schema_editor: BaseDatabaseSchemaEditor) -> None:
    rules, receivers = (apps.get_model("workers", name).objects for name in ("AlertRule", "Receiver"))
    receivers.filter(name="consoles", channel="browser").update(severities=SEVERITIES)
    for rule in rules.all():
        shipped = rule.severity in SEVERITIES and rule.escalation == SHIPPED
        if shipped or (rule.severity == "notice" and not rule.escalation):
            rule.escalation = None
            rule.save(update_fields=["escalation"])


class Migration(migrations.Migration):
    dependencies = [("workers", "0040_shipped_settings")]
    operations = [
        migrations.AddField("Receiver", "severities", models.JSONField(default=list)),
        migrations.AddField("Receiver", "team", models.CharField(max_length=40, default="", db_default="", blank=True)),
        migrations.AddField("Receiver", "route_minutes", models.FloatField(default=0.0, db_default=0.0)),
        migrations.AddField("AlertRule", "team", models.CharField(max_length=40, default="", db_default="", blank=True)),
        migrations.AlterField("AlertRule", "escalation", models.JSONField(default=None, null=True)),
        migrations.RunPython(follow, migrations.RunPython.noop),
    ]
