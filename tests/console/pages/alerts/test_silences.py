"""Silences on their page: previewed, set, ended, and what they may not leave out."""

import re

import pytest

from tests.console.pages.alerts.checks import REASON, audited, fetch, look, matcher, opened
from workers.alerts.lifecycle.models import Silence

pytestmark = pytest.mark.django_db


def test_a_silence_is_previewed_then_set_then_ended(operator, alert):
    posted = matcher("n*", operator="~")
    said = fetch(operator, "/alerts/silences/preview", posted).json()
    assert (
        said["sentence"].startswith("The silence would suppress 1 open alert")
        and said["rows"][0]["title"] == alert.title
    )
    assert not Silence.objects.exists()
    assert fetch(operator, "/alerts/silences/add", {**posted, **REASON, "minutes": "60"}).status_code == 200
    look(2)
    alert.refresh_from_db()
    assert alert.silence is not None
    assert "Node n1 is lost" in operator.get("/alerts/silences/").content.decode()
    silence = Silence.objects.get()
    assert fetch(operator, f"/alerts/silences/{silence.pk}/end").json()["message"] == "Silence ended."
    assert "had already ended" in fetch(operator, f"/alerts/silences/{silence.pk}/end").json()["message"]
    assert [action for _, action, _ in audited()] == ["silence.set", "silence.end"]


def as_filled(page: str) -> dict[str, list[str]]:
    """What a browser posts of the matchers as the page has filled them in."""
    chosen = r'<select name="matcher-{}".*?</select>'
    form = {"matcher-value": re.findall(r'name="matcher-value" value="([^"]*)"', page)}
    for name in ("label", "is"):
        lists = re.findall(chosen.format(name), page, re.DOTALL)
        options = [re.findall(r"<option( selected)?>([^<]*)", each) for each in lists]
        form[f"matcher-{name}"] = [max(each, key=lambda option: option[0])[1] for each in options]
    return form


def test_a_silence_that_is_filled_in_for_an_alert_hides_it(operator, alert):
    about = opened("override_ending", override="3", what="Override of cap of all flow loops", law="flow")
    page = operator.get(f"/alerts/silences/?alert={about.pk}").content.decode()
    said = fetch(operator, "/alerts/silences/preview", as_filled(page)).json()
    assert said["sentence"].startswith("The silence would suppress 1 open alert"), as_filled(page)
    assert said["rows"][0]["url"] == f"/alerts/{about.pk}/"


@pytest.mark.parametrize(
    ("posted", "field"),
    [
        ({**REASON, "minutes": "60"}, "matchers"),
        ({**matcher(), "minutes": "60"}, "reason"),
        ({**matcher(), **REASON}, "minutes"),
        ({**matcher(), **REASON, "minutes": "10081"}, "minutes"),
        ({**matcher(label="colour"), **REASON, "minutes": "60"}, "matchers[0].label"),
        ({**matcher(operator="<"), **REASON, "minutes": "60"}, "matchers[0].is"),
    ],
)
def test_a_silence_without_a_matcher_a_reason_or_an_end_is_refused(posted, field, operator, alert):
    answer = fetch(operator, "/alerts/silences/add", posted)
    assert (answer.status_code, list(answer.json()["errors"])) == (422, [field])
    assert not Silence.objects.exists() and audited() == []
