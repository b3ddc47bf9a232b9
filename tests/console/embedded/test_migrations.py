"""The tables are as the models say."""

from django.core.management import call_command


def test_every_change_of_a_model_has_its_migration(db):
    call_command("makemigrations", check_changes=True, dry_run=True, verbosity=0)
