"""Preferences of users: they apply in all browsers, and are checked and audited."""

import re

import pytest

from console.models import AuditEntry, UserPreferences

pytestmark = [pytest.mark.django_db, pytest.mark.usefixtures("stored_snapshot")]
JSON = {"Accept": "application/json"}


def head_of(browser, path="/"):
    return " ".join(re.search("<html([^>]*)>", browser.get(path).content.decode())[1].split())


def test_a_page_has_the_preferences_of_its_user_only(viewer, operator):
    assert head_of(viewer) == 'lang="en"'
    assert viewer.post("/settings/preferences", {"name": "density", "value": "compact"}, headers=JSON).json()["ok"]
    assert head_of(viewer) == 'lang="en" data-preferences data-density="compact"'
    assert head_of(operator) == 'lang="en"'
    entry = AuditEntry.objects.get(action="preference.set")
    assert (entry.target, entry.before, entry.after) == ("density", "comfortable", "compact")


def test_a_default_is_not_written_into_the_page_and_no_change_is_not_audited(viewer):
    for value in ("dark", "system", "system"):
        viewer.post("/settings/preferences", {"name": "theme", "value": value}, headers=JSON)
    assert head_of(viewer) == 'lang="en" data-preferences'
    assert AuditEntry.objects.filter(action="preference.set").count() == 2


@pytest.mark.parametrize(
    ("form", "field", "words"),
    [
        ({"name": "color", "value": "dark"}, "name", "must be theme, density, sound, not 'color'."),
        ({"name": "theme", "value": "pink"}, "value", "must be system or light or dark, not 'pink'."),
    ],
)
def test_an_unknown_preference_is_refused_with_the_possible_ones(form, field, words, viewer):
    answer = viewer.post("/settings/preferences", form, headers=JSON)
    assert answer.status_code == 422 and answer.json()["errors"] == {field: [words]}
    assert not UserPreferences.objects.exists()
