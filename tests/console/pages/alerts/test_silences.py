"""Silences on their page: previewed, set, ended, and what they may not leave out."""

import pytest

from tests.console.pages.alerts.checks import REASON, audited, fetch, look, matcher
from workers.alerts.lifecycle.models import Silence

pytestmark = pytest.mark.django_db


def test_a_silence_is_previewed_then_set_then_ended(operator, alert):
    posted = matcher("n*", operator="~")
    said = fetch(operator, "/alerts/silences/preview", posted).json()
    assert said["sentence"].startswith("It hides 1 open alert") and said["rows"][0]["title"] == alert.title
    assert not Silence.objects.exists()
    assert fetch(operator, "/alerts/silences/add", {**posted, **REASON, "minutes": "60"}).status_code == 200
    look(2)
    alert.refresh_from_db()
    assert alert.silence is not None
    assert "Node n1 is lost" in operator.get("/alerts/silences/").content.decode()
    silence = Silence.objects.get()
    assert fetch(operator, f"/alerts/silences/{silence.pk}/end").json()["message"] == "The silence has ended."
    assert "over already" in fetch(operator, f"/alerts/silences/{silence.pk}/end").json()["message"]
    assert [action for _, action, _ in audited()] == ["silence.set", "silence.end"]


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
