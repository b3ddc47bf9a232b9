"""Tables of the task history: recent tasks, blocks, gaps, feeds, and groups of failures."""

from django.db import migrations, models


class Migration(migrations.Migration):

    dependencies = [
        ('workers', '0046_planned_windows'),
    ]

    operations = [
        migrations.CreateModel(
            name='TaskFeed',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                ('plant', models.CharField(max_length=40, unique=True)),
                ('began_at', models.FloatField()),
                ('heard_until', models.FloatField()),
                ('fence', models.PositiveBigIntegerField(default=0)),
            ],
        ),
        migrations.CreateModel(
            name='FailureGroup',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                ('plant', models.CharField(max_length=40)),
                ('fingerprint', models.CharField(max_length=16)),
                ('name', models.CharField(max_length=255)),
                ('error', models.CharField(max_length=300)),
                ('first_seen', models.FloatField()),
                ('last_seen', models.FloatField()),
                ('count', models.PositiveBigIntegerField(default=0)),
                ('hours', models.JSONField(default=dict)),
                ('queues', models.JSONField(default=dict)),
                ('workers', models.JSONField(default=dict)),
                ('last_task', models.CharField(default='', max_length=255)),
            ],
            options={
                'indexes': [models.Index(fields=['plant', 'last_seen'], name='workers_fai_plant_eec743_idx'), models.Index(fields=['first_seen'], name='workers_fai_first_s_2fa2d8_idx')],
                'constraints': [models.UniqueConstraint(fields=('plant', 'fingerprint'), name='one_group_a_fingerprint')],
            },
        ),
        migrations.CreateModel(
            name='RecentTask',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                ('plant', models.CharField(max_length=40)),
                ('task_id', models.CharField(max_length=255)),
                ('at', models.FloatField()),
                ('finished', models.BooleanField()),
                ('record', models.BinaryField()),
            ],
            options={
                'indexes': [models.Index(fields=['plant', 'at'], name='workers_rec_plant_a8911f_idx')],
                'constraints': [models.UniqueConstraint(fields=('plant', 'task_id'), name='one_recent_task_an_id')],
            },
        ),
        migrations.CreateModel(
            name='TaskBlock',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                ('plant', models.CharField(max_length=40)),
                ('day', models.CharField(max_length=10)),
                ('first', models.FloatField()),
                ('last', models.FloatField()),
                ('rows', models.PositiveIntegerField()),
                ('lines', models.PositiveIntegerField()),
                ('superseded', models.BinaryField(default=b'')),
                ('file', models.CharField(blank=True, default='', max_length=200)),
                ('row_group', models.PositiveIntegerField(default=None, null=True)),
                ('filter_at', models.PositiveBigIntegerField(default=None, null=True)),
                ('filter', models.BinaryField(default=None, null=True)),
                ('data', models.BinaryField(default=None, null=True)),
            ],
            options={
                'indexes': [models.Index(fields=['plant', '-last'], name='workers_tas_plant_2f7422_idx'), models.Index(fields=['day', 'plant'], name='workers_tas_day_80967f_idx')],
            },
        ),
        migrations.CreateModel(
            name='TaskGap',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                ('plant', models.CharField(max_length=40)),
                ('worker', models.CharField(blank=True, default='', max_length=255)),
                ('since', models.FloatField()),
                ('until', models.FloatField()),
                ('reason', models.CharField(max_length=200)),
            ],
            options={
                'indexes': [models.Index(fields=['plant', 'until'], name='workers_tas_plant_30eedc_idx')],
            },
        ),
    ]
