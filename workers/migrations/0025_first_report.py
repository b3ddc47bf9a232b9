"""What a loop that advises at another's plant would have saved in its first hour."""

import django.db.models.deletion
from django.db import migrations, models


class Migration(migrations.Migration):

    dependencies = [
        ('workers', '0024_weekly_report'),
    ]

    operations = [
        migrations.CreateModel(
            name='FirstReport',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                ('since', models.DateTimeField()),
                ('until', models.DateTimeField()),
                ('figures', models.JSONField(null=True)),
                ('loop', models.OneToOneField(on_delete=django.db.models.deletion.CASCADE, related_name='first_report', to='workers.loop')),
            ],
        ),
    ]
