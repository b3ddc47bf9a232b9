from django.db import migrations, models


class Migration(migrations.Migration):

    dependencies = [
        ('queues', '0003_requirements'),
    ]

    operations = [
        migrations.AddField(
            model_name='node',
            name='replica_url',
            field=models.CharField(blank=True, default='', help_text='the server that copies it, or empty', max_length=300),
        ),
        migrations.AddField(
            model_name='node',
            name='promotions',
            field=models.PositiveIntegerField(default=0),
        ),
        migrations.AddField(
            model_name='node',
            name='promoted_at',
            field=models.DateTimeField(default=None, null=True),
        ),
        migrations.AddField(
            model_name='queue',
            name='durability',
            field=models.CharField(choices=[('memory', 'memory'), ('disk', 'disk'), ('replicated', 'replicated')], default='memory', help_text='where events are stored when a publish is acknowledged', max_length=10),
        ),
    ]
