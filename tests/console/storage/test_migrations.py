"""A database that a newer version has written is found out before anything changes it."""

import pytest
from django.db.migrations.recorder import MigrationRecorder

from console.embedded.preparation import refuse_a_newer_database
from console.storage.migrations import list_newer_migrations
from console.upkeep import doctor

pytestmark = pytest.mark.django_db


def test_the_database_of_this_version_is_taken():
    assert list_newer_migrations() == []
    refuse_a_newer_database()


def test_one_of_a_newer_version_is_refused_by_what_it_has():
    MigrationRecorder.Migration.objects.create(app="console", name="9999_of_tomorrow")
    with pytest.raises(SystemExit, match=r"newer version of Weir \(migration console\.9999_of_tomorrow\)"):
        refuse_a_newer_database()
    assert "console.9999_of_tomorrow" in next(doctor.check_database()).text


def test_what_another_package_has_dropped_since_is_no_newer_weir():
    MigrationRecorder.Migration.objects.create(app="axes", name="0001_squashed")
    assert list_newer_migrations() == []
