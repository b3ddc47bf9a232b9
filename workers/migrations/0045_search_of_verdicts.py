"""The search index has no separate word for an action whose effect is not known yet."""

from typing import Any

from django.db import migrations

from workers.control.ledger import ledger_search


def renew(_: Any, schema_editor: Any) -> None:
    if schema_editor.connection.vendor == "sqlite":
        with schema_editor.connection.cursor() as cursor:
            ledger_search.renew(cursor)


class Migration(migrations.Migration):
    dependencies = [("workers", "0044_judge_at")]
    operations = [migrations.RunPython(renew, migrations.RunPython.noop)]
