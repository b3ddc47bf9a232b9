"""Rule `loops-stopped` says in 20 s what each loop by itself would say after 27: also where a plant has the rule
already, unless somebody has changed it.
"""

from django.apps.registry import Apps
from django.db import migrations
from django.db.backends.base.schema import BaseDatabaseSchemaEditor


def sooner(apps: Apps, schema_editor: BaseDatabaseSchemaEditor) -> None:
    rules = apps.get_model("workers", "AlertRule").objects
    as_shipped = rules.filter(name="loops-stopped", threshold=60, clear_threshold=30)
    as_shipped.update(threshold=20, clear_threshold=10)


class Migration(migrations.Migration):
    dependencies = [("workers", "0025_first_report")]
    operations = [migrations.RunPython(sooner, migrations.RunPython.noop)]
