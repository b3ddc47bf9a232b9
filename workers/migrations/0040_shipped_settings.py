"""Loops of an existing plant start with the settings that new loops have, unless somebody has changed them."""

from django.apps.registry import Apps
from django.db import migrations
from django.db.backends.base.schema import BaseDatabaseSchemaEditor

# law → the interval in s that older versions shipped, the one that ships now, and the parameters added since.
SHIPPED: dict[str, tuple[float, float, dict[str, object]]] = {
    "balance": (5.0, 5.0, {"delay": 0, "averaging": 2}),
    "rebalancing": (15.0, 15.0, {"minimum_points": 20}),
    "shedding": (2.0, 1.0, {"spare": "admit"}),
}


def add_settings(apps: Apps, schema_editor: BaseDatabaseSchemaEditor) -> None:
    for loop in apps.get_model("workers", "Loop").objects.filter(law__in=SHIPPED):
        before, now, added = SHIPPED[loop.law]
        loop.parameters = {**added, **loop.parameters}
        loop.interval_seconds = now if loop.interval_seconds == before else loop.interval_seconds
        loop.save(update_fields=["interval_seconds", "parameters"])


class Migration(migrations.Migration):
    dependencies = [("workers", "0039_pools_every_two_seconds")]
    operations = [migrations.RunPython(add_settings, migrations.RunPython.noop)]
