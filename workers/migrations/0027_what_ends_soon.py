"""Rule `override-ending` names what ends, a pause and a drain too: also where a plant has the rule already, unless
somebody has changed it.
"""

from django.apps.registry import Apps
from django.db import migrations
from django.db.backends.base.schema import BaseDatabaseSchemaEditor


def named(apps: Apps, schema_editor: BaseDatabaseSchemaEditor) -> None:
    rules = apps.get_model("workers", "AlertRule").objects
    as_shipped = rules.filter(name="override-ending", title="Override of {loop}{node} ends soon")
    as_shipped.update(title="{what} ends soon")


class Migration(migrations.Migration):
    dependencies = [("workers", "0026_loops_stopped_sooner")]
    operations = [migrations.RunPython(named, migrations.RunPython.noop)]
