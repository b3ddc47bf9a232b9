from collections.abc import Callable, Iterable
from typing import Any

from django.db import migrations, models

from console.storage.append_only import protect, release
from console.audit.chain import CONTENT, chain_rows

BATCH = 1_000


def run(statements: Callable[[str], Iterable[str]]) -> Callable[[Any, Any], None]:
    def apply(apps: Any, schema_editor: Any) -> None:
        for statement in statements(schema_editor.connection.vendor):
            schema_editor.execute(statement, params=None)

    return apply


def chain(apps: Any, schema_editor: Any) -> None:
    """The entries of before, in the order of their ids: from here on they can't be altered unnoticed."""
    Entry = apps.get_model("console", "AuditEntry")
    batch = []
    for row in chain_rows(Entry.objects.order_by("pk").only(*CONTENT).iterator(BATCH)):
        batch.append(row)
        if len(batch) == BATCH:
            Entry.objects.bulk_update(batch, ["sequence", "previous", "digest"], batch_size=100)
            batch = []
    Entry.objects.bulk_update(batch, ["sequence", "previous", "digest"], batch_size=100)


class Migration(migrations.Migration):
    dependencies = [("console", "0006_accounts")]

    operations = [
        migrations.RunPython(run(release), run(protect), elidable=False),
        migrations.AddField("auditentry", "sequence", models.BigIntegerField(null=True)),
        migrations.AddField("auditentry", "previous", models.CharField(max_length=64, default="")),
        migrations.AddField("auditentry", "digest", models.CharField(max_length=64, default="")),
        migrations.RunPython(chain, migrations.RunPython.noop, elidable=False),
        migrations.AlterField("auditentry", "sequence", models.BigIntegerField(unique=True)),
        migrations.AlterField("auditentry", "previous", models.CharField(max_length=64)),
        migrations.AlterField("auditentry", "digest", models.CharField(max_length=64)),
        migrations.RunPython(run(protect), run(release), elidable=False),
    ]
