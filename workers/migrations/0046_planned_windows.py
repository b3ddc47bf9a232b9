"""Planned windows: maintenance windows, change freezes, and recurring silences."""

import django.db.models.deletion
import django.utils.timezone
from django.conf import settings
from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [
        ("workers", "0045_search_of_verdicts"),
        migrations.swappable_dependency(settings.AUTH_USER_MODEL),
    ]

    operations = [
        migrations.CreateModel(
            name="ExpectedAlert",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                ("local_start", models.CharField(max_length=19)),
                ("starts_at", models.DateTimeField()),
                ("ends_at", models.DateTimeField()),
                ("at", models.DateTimeField()),
                (
                    "alert",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.CASCADE, related_name="+", to="workers.alert"
                    ),
                ),
            ],
        ),
        migrations.AddField(
            model_name="alert",
            name="expected",
            field=models.ForeignKey(
                null=True, on_delete=django.db.models.deletion.SET_NULL, related_name="+", to="workers.expectedalert"
            ),
        ),
        migrations.CreateModel(
            name="PlannedWindow",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                ("name", models.CharField(max_length=80)),
                (
                    "kind",
                    models.CharField(
                        choices=[
                            ("maintenance", "Maintenance"),
                            ("freeze", "Change freeze"),
                            ("silence", "Recurring silence"),
                        ],
                        max_length=12,
                    ),
                ),
                ("scope", models.JSONField(default=list)),
                ("expected", models.JSONField(default=list)),
                (
                    "loop_mode",
                    models.CharField(
                        choices=[("unchanged", "Unchanged"), ("advise", "Advise"), ("hold", "Hold")],
                        default="unchanged",
                        max_length=10,
                    ),
                ),
                ("local_start", models.CharField(max_length=19)),
                ("time_zone", models.CharField(max_length=64)),
                ("duration_minutes", models.PositiveIntegerField()),
                ("rule", models.CharField(blank=True, default="", max_length=200)),
                ("exceptions", models.JSONField(default=dict)),
                ("last_end", models.DateTimeField(db_index=True, default=None, null=True)),
                ("event_uid", models.CharField(blank=True, default="", max_length=255)),
                ("reason", models.TextField()),
                ("created_at", models.DateTimeField(default=django.utils.timezone.now)),
                ("ended_at", models.DateTimeField(default=None, null=True)),
                (
                    "ended_by",
                    models.ForeignKey(
                        null=True,
                        on_delete=django.db.models.deletion.PROTECT,
                        related_name="+",
                        to=settings.AUTH_USER_MODEL,
                    ),
                ),
                (
                    "owner",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.PROTECT, related_name="+", to=settings.AUTH_USER_MODEL
                    ),
                ),
            ],
        ),
        migrations.CreateModel(
            name="FreezeOverride",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                ("reason", models.TextField()),
                ("at", models.DateTimeField()),
                ("until", models.DateTimeField(db_index=True)),
                (
                    "user",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.PROTECT, related_name="+", to=settings.AUTH_USER_MODEL
                    ),
                ),
                (
                    "window",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.CASCADE,
                        related_name="overrides",
                        to="workers.plannedwindow",
                    ),
                ),
            ],
        ),
        migrations.AddField(
            model_name="expectedalert",
            name="window",
            field=models.ForeignKey(
                on_delete=django.db.models.deletion.CASCADE, related_name="silenced", to="workers.plannedwindow"
            ),
        ),
        migrations.AddConstraint(
            model_name="expectedalert",
            constraint=models.UniqueConstraint(
                fields=("window", "alert", "local_start"), name="one_expected_alert_an_occurrence"
            ),
        ),
    ]
