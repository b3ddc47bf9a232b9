from django.db import migrations, models


class Migration(migrations.Migration):

    dependencies = [
        ('queues', '0002_draining_and_cordon'),
    ]

    operations = [
        migrations.AddField(
            model_name='queue',
            name='requirements',
            field=models.JSONField(blank=True, default=list, help_text='capabilities of worker hosts (jobs queues)'),
        ),
    ]
