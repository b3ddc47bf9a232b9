"""Saved filters of the ledger name the option `ticks` as the export does: `each=1` becomes `ticks=all`."""

from django.apps.registry import Apps
from django.db import migrations
from django.db.backends.base.schema import BaseDatabaseSchemaEditor

OLD, NEW = "each=1", "ticks=all"


def rename_option(apps: Apps, schema_editor: BaseDatabaseSchemaEditor) -> None:
    for row in apps.get_model("console", "SavedFilter").objects.filter(page="ledger", query__contains=OLD):
        row.query = "&".join(NEW if part == OLD else part for part in row.query.split("&"))
        row.save(update_fields=["query"])


class Migration(migrations.Migration):
    dependencies = [("console", "0014_drill_checks")]
    operations = [migrations.RunPython(rename_option, migrations.RunPython.noop)]
