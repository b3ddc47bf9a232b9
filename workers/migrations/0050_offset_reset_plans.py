"""Stored plans of offset resets."""

import django.db.models.deletion
import django.utils.timezone
from django.conf import settings
from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [
        ("workers", "0049_paused_schedules"),
        migrations.swappable_dependency(settings.AUTH_USER_MODEL),
    ]

    operations = [
        migrations.CreateModel(
            name="OffsetResetPlan",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                (
                    "state",
                    models.CharField(
                        choices=[
                            ("proposed", "Proposed"),
                            ("approved", "Approved"),
                            ("done", "Done"),
                            ("failed", "Failed"),
                            ("rejected", "Rejected"),
                            ("expired", "Expired"),
                        ],
                        db_index=True,
                        default="proposed",
                        max_length=12,
                    ),
                ),
                ("plant", models.CharField(db_index=True, max_length=40)),
                ("group", models.CharField(max_length=255)),
                ("target", models.TextField()),
                ("partitions", models.JSONField()),
                ("skipped", models.PositiveBigIntegerField()),
                ("again", models.PositiveBigIntegerField()),
                ("hash", models.CharField(max_length=64)),
                ("reason", models.TextField()),
                ("approvals", models.JSONField(default=list)),
                ("created_at", models.DateTimeField(default=django.utils.timezone.now)),
                ("expires_at", models.DateTimeField()),
                ("ended_at", models.DateTimeField(default=None, null=True)),
                ("note", models.TextField(blank=True, default="")),
                (
                    "owner",
                    models.ForeignKey(
                        null=True,
                        on_delete=django.db.models.deletion.PROTECT,
                        related_name="+",
                        to=settings.AUTH_USER_MODEL,
                    ),
                ),
            ],
        ),
    ]
