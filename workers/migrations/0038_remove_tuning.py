"""Remove the tuning of parameters on recorded data: its task and its proposals."""

from django.apps.registry import Apps
from django.db import migrations
from django.db.backends.base.schema import BaseDatabaseSchemaEditor


def remove_task(apps: Apps, schema_editor: BaseDatabaseSchemaEditor) -> None:
    tasks = apps.get_model("workers", "Task").objects.filter(job="tuning")
    schedules = [pk for pk in tasks.values_list("periodic", flat=True) if pk is not None]
    tasks.delete()
    apps.get_model("django_celery_beat", "PeriodicTask").objects.filter(pk__in=schedules).delete()


class Migration(migrations.Migration):
    dependencies = [
        ("workers", "0037_mode_proposal"),
        ("django_celery_beat", "0019_alter_periodictasks_options"),
    ]
    operations = [
        migrations.RunPython(remove_task, migrations.RunPython.noop),
        migrations.DeleteModel("Tuning"),
    ]
