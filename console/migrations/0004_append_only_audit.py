from collections.abc import Callable, Iterable
from typing import Any

from django.db import migrations

from console.storage.append_only import protect, release


def run(statements: Callable[[str], Iterable[str]]) -> Callable[[Any, Any], None]:
    def apply(apps: Any, schema_editor: Any) -> None:
        for statement in statements(schema_editor.connection.vendor):
            # What 0007 adds reads a column that is not there yet.
            if "_replace" not in statement:
                schema_editor.execute(statement, params=None)

    return apply


class Migration(migrations.Migration):
    dependencies = [("console", "0003_sessions_and_submissions")]

    operations = [migrations.RunPython(run(protect), run(release), elidable=False)]
