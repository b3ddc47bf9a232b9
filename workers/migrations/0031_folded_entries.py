"""Entries that stand for ticks before them which did nothing either.

On SQLite the columns are added as they are: Django would write the table anew, which the search's view forbids
and a long ledger takes minutes for.
"""

from django.apps.registry import Apps
from django.db import migrations, models
from django.db.backends.base.schema import BaseDatabaseSchemaEditor

FILTERS = ["-id", "loop", "verdict", "mode", "limited_by", "acted", "at", "folded_ticks", "folded_since"]
COLUMNS = {
    "folded_ticks": "integer unsigned NOT NULL DEFAULT 0 CHECK (folded_ticks >= 0)",
    "folded_since": "datetime NULL",
    "folded": "BLOB NULL",
}
FIELDS = [
    migrations.AddField("ledgerentry", "folded_ticks", models.PositiveIntegerField(default=0)),
    migrations.AddField("ledgerentry", "folded_since", models.DateTimeField(default=None, null=True)),
    migrations.AddField("ledgerentry", "folded", models.BinaryField(default=None, null=True)),
]


def add(apps: Apps, schema_editor: BaseDatabaseSchemaEditor) -> None:
    model = apps.get_model("workers", "LedgerEntry")
    for field in FIELDS:
        if schema_editor.connection.vendor == "sqlite":
            schema_editor.execute(
                f"ALTER TABLE workers_ledgerentry ADD COLUMN {field.name} {COLUMNS[field.name]}"
            )
        else:
            field.field.set_attributes_from_name(field.name)
            schema_editor.add_field(model, field.field)


def drop(apps: Apps, schema_editor: BaseDatabaseSchemaEditor) -> None:
    for name in COLUMNS:
        schema_editor.execute(f"ALTER TABLE workers_ledgerentry DROP COLUMN {name}")


class Migration(migrations.Migration):
    dependencies = [("workers", "0030_who_has_a_message")]
    operations = [
        migrations.SeparateDatabaseAndState([migrations.RunPython(add, drop)], FIELDS),
        migrations.RemoveIndex("ledgerentry", "ledger_filters"),
        migrations.AddIndex("ledgerentry", models.Index(fields=FILTERS, name="ledger_filters")),
    ]
