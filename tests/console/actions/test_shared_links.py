"""A link to an instant: it shows that to who has it, nothing else, to nobody else, and not for ever."""

from copy import deepcopy
from datetime import UTC, datetime, timedelta

import orjson
import pytest
from django.core.exceptions import PermissionDenied
from django.core.signing import Signer
from django.test import Client
from django.utils import timezone

from common.errors import BadInput
from console.accounts import tokens
from console.accounts.access import Actor
from console.actions import shared_links
from console.models import ApiToken, AuditEntry, QueueLimit, SharedLink
from tests.console.conftest import sample_snapshot
from workers.history.snapshot_archive import Recorder

pytestmark = pytest.mark.django_db
THEN = datetime(2026, 11, 20, 3, 12, tzinfo=UTC)
AT = "2026-11-20T03:12:00Z"
OPERATOR = Actor("ada", "operator")


@pytest.fixture
def kept(settings, tmp_path):
    """The plant at 03:12, with an override in force and an alert whose title came from outside."""
    settings.WEIR_DATA = tmp_path
    was = deepcopy(sample_snapshot())
    was["at"] = THEN.timestamp() - 0.8
    was["health"] |= {"state": "TOOBUSY", "severity": "critical", "sentence": "Node n1 is <b>too busy</b>."}
    was["overrides"] = [{"id": 1, "name": "busy", "value": 0.5, "owner": "grace.hopper", "reason": "mine"}]
    was["alerts"] = [{"id": 1, "severity": "critical", "title": "<script>n1", "since": was["at"] - 60}]
    Recorder(tmp_path).add(was["at"], orjson.dumps(was))


def shared(hours=24, actor=OPERATOR):
    reason = "for the people of the mail room"
    return shared_links.share(actor, at=THEN, hours=hours, reason=reason, now=timezone.now())


def test_who_has_the_link_sees_the_plant_at_that_time_without_a_login(kept):
    answer = Client().get(shared_links.format_link_address(shared()))
    body = answer.content.decode()
    assert answer.status_code == 200
    assert "Too busy" in body and "Node n1 is" not in body
    assert "&lt;script&gt;n1" in body and "<script>n1" not in body
    assert "grace.hopper" not in body and "redis://" not in body
    assert answer["Cache-Control"].startswith("max-age=0") and "no-store" in answer["Cache-Control"]
    assert answer["Referrer-Policy"] == "no-referrer" and answer["X-Robots-Tag"].startswith("noindex")
    assert not answer.cookies


SECRETS = ("hunter2", "10.9.8.7", "grace.hopper", "sftp://")
TOLD = {  # what broke, as the headline says it, and as strangers are told
    "delivery-failing": (
        "receiver/desk",
        "Delivery to desk fails: https://10.9.8.7/hook?key=hunter2 answered 500.",
        "Delivery to desk fails",
    ),
    "audit-altered": ("plant/here", "Entry 7 of grace.hopper at 10.9.8.7 was altered.", "The audit log was altered"),
    "pipeline-down": ("pipeline/", "The pipeline failed: sftp://grace.hopper@10.9.8.7: hunter2.", ""),
    "sensor-silent": (
        "plant/shop",
        "Sensor waiting: redis://10.9.8.7 refuses hunter2.",
        "Sensor waiting of shop has no value",
    ),
    "pool-refuses": ("host/jobs@10.9.8.7", "The pool of jobs@10.9.8.7 differs from its setting: hunter2.", ""),
    "loop-held": ("loop/concurrency/jobs@10.9.8.7", "It is on hold: hunter2.", ""),
}
# rule → title as shipped, labels: they name a host, or a person.
NAMING = {
    "pool-refuses": ("The pool of jobs@10.9.8.7 can't grow", {"host": "jobs@10.9.8.7"}),
    "delivery-failing": ("Delivery to hunter2 fails", {"receiver": "hunter2"}),
    "override-ending": ("Drain of jobs@10.9.8.7 expires soon", {"override": "3"}),
    "loop-held": ("concurrency/jobs@10.9.8.7: in mode hold or manual", {"loop": "concurrency/jobs@10.9.8.7"}),
}


@pytest.mark.parametrize("case", TOLD)
def test_strangers_are_shown_what_is_unwell_and_not_why(case, settings, tmp_path):
    settings.WEIR_DATA = tmp_path
    subject, sentence, title = TOLD[case]
    was = deepcopy(sample_snapshot())
    finding = {"subject": subject, "severity": "critical", "sign": "TOOBUSY", "sentence": sentence}
    was["at"] = THEN.timestamp() - 0.8
    was["health"] |= {"severity": "critical", "sentence": sentence, "findings": [finding]}
    alert = {"id": 1, "severity": "critical", "title": title, "sentence": sentence, "since": was["at"]}
    was["alerts"] = [alert] if title else []
    Recorder(tmp_path).add(was["at"], orjson.dumps(was))
    body = Client().get(shared_links.format_link_address(shared())).content.decode()
    assert not [each for each in SECRETS if each in body], body
    said = title or subject.partition("/")[0].capitalize()
    assert f'og:description" content="Normal: {said}"' in body


@pytest.mark.parametrize("rule", NAMING)
def test_a_title_that_names_a_host_or_a_person_is_shown_to_strangers_as_its_rule(rule, settings, tmp_path):
    settings.WEIR_DATA = tmp_path
    title, labels = NAMING[rule]
    was = deepcopy(sample_snapshot())
    was["at"] = THEN.timestamp() - 0.8
    alert = {"id": 1, "severity": "critical", "title": title, "rule": rule, "labels": labels}
    was["alerts"] = [{**alert, "since": was["at"]}]
    Recorder(tmp_path).add(was["at"], orjson.dumps(was))
    body = Client().get(shared_links.format_link_address(shared())).content.decode()
    assert not [each for each in SECRETS if each in body], body
    assert rule.replace("-", " ").capitalize() in body


def test_while_the_disk_is_away_a_link_opens_nothing(kept, tmp_path):
    address = shared_links.format_link_address(shared())
    (file,) = (tmp_path / "snapshots").glob("open-*.jsonl")
    aside = file.rename(tmp_path / "aside")
    assert Client().get(address).status_code == 404
    file.mkdir()  # what can't be read, as on a disk that fails
    assert Client().get(address).status_code == 404
    file.rmdir()
    aside.rename(file)
    assert Client().get(address).status_code == 200


def test_it_opens_nothing_else(kept):
    """No page, no API, no socket's snapshot, and no other instant."""
    link, stranger = shared_links.format_link_address(shared()), Client()
    stranger.get(link)
    assert stranger.get("/", {"at": AT}).status_code == 302
    assert stranger.get("/api/v1/snapshot", {"at": AT}).status_code == 401
    assert stranger.get("/timeline/").status_code == 302
    assert "2026-11-20T03:11:59" in stranger.get(link, {"at": "2026-11-21T00:00:00Z"}).content.decode()
    assert stranger.post(link).status_code == 405


def test_a_link_that_nobody_made_opens_nothing(kept):
    made = shared()
    signed = Signer(salt=shared_links.SALT).sign(str(made.pk))
    mac = signed.partition(":")[2]
    forged = (
        str(made.pk),
        f"{made.pk}:",
        f"{made.pk}:{'A' * len(mac)}",
        f"{made.pk + 1}:{mac}",  # another row under this row's signature
        f"0{made.pk}:{mac}",
        Signer(salt="another purpose").sign(str(made.pk)),
        Signer(key="another key", salt=shared_links.SALT).sign(str(made.pk)),
        Signer(salt=shared_links.SALT).sign("one"),
        Signer(salt=shared_links.SALT).sign(str(2**70)),
    )
    for each in forged:
        answer = Client().get(f"/shared/{each}/")
        assert answer.status_code == 404 and b"This link is not valid" in answer.content, each
    assert Client().get(f"/shared/{signed}/").status_code == 200


def test_it_ends_at_its_time_or_when_somebody_ends_it(kept):
    made, brief = shared(), shared(hours=0.001)
    SharedLink.objects.filter(pk=brief.pk).update(expires_at=timezone.now() - timedelta(seconds=1))
    assert Client().get(shared_links.format_link_address(brief)).status_code == 404
    shared_links.end(OPERATOR, made, reason="it went to the wrong room", now=timezone.now())
    shared_links.end(OPERATOR, made, reason="it went to the wrong room", now=timezone.now())
    assert Client().get(shared_links.format_link_address(made)).status_code == 404
    said = list(AuditEntry.objects.order_by("pk").values_list("action", "target"))
    name = f"link {made.pk} to 2026-11-20T03:12:00Z"
    assert said == [("link.make", name), ("link.make", str(brief)), ("link.end", name)]


def test_what_is_kept_and_audited_opens_nothing(kept):
    made = shared()
    link = shared_links.format_link_address(made)
    secret = link.strip("/").rpartition(":")[2]
    assert secret not in str(SharedLink.objects.filter(pk=made.pk).values().get())
    assert secret not in str(list(AuditEntry.objects.values()))


@pytest.mark.parametrize(
    ("given", "field"),
    [
        ({"hours": 0}, "hours"),
        ({"hours": 169}, "hours"),
        ({"hours": float("nan")}, "hours"),
        ({"reason": "  "}, "reason"),
        ({"reason": "x" * 501}, "reason"),
        ({"at": THEN - timedelta(days=3)}, "at"),
        ({"at": datetime(2999, 1, 1, tzinfo=UTC)}, "at"),
    ],
)
def test_what_can_not_be_is_refused_by_name_and_makes_no_link(kept, given, field):
    good = {"at": THEN, "hours": 1.0, "reason": "for the mail room"}
    with pytest.raises(BadInput) as refused:
        shared_links.share(OPERATOR, now=timezone.now(), **{**good, **given})
    assert refused.value.field == field
    assert not SharedLink.objects.exists()


def test_links_have_an_upper_number(kept, monkeypatch):
    monkeypatch.setattr(shared_links, "MAX_OPEN", 1)
    shared()
    with pytest.raises(BadInput, match="exceeds the limit"):
        shared()


def test_who_may_not_see_all_queues_shares_none(kept):
    with pytest.raises(PermissionDenied):
        shared(actor=Actor("ada", "operator", queues=frozenset({"alert"})))
    with pytest.raises(PermissionDenied):
        shared(actor=Actor("eve", "viewer"))


def test_who_may_share_none_is_shown_no_address_of_another(kept, browsers, people, stored_snapshot):
    """Who has the address sees the plant, and hands it on."""
    address = shared_links.format_link_address(shared())
    QueueLimit.objects.create(user=people["operator"], queues=["alert"])
    operator = browsers["operator"]
    answer = operator.get("/api/v1/shared-links")
    assert answer.status_code == 403 and address not in answer.content.decode()
    page = operator.get("/timeline/").content.decode()
    assert address not in page and "Create link" not in page


def test_an_operator_shares_a_time_on_the_timeline_and_ends_the_link_there(kept, browsers, stored_snapshot):
    operator = browsers["operator"]
    body = {"at": AT, "hours": "24", "reason": "for the mail room"}
    assert operator.post("/timeline/share", body).status_code == 302
    made = SharedLink.objects.get()
    page = operator.get("/timeline/").content.decode()
    assert f"http://testserver{shared_links.format_link_address(made)}" in page
    assert shared_links.format_link_address(made) not in browsers["viewer"].get("/timeline/").content.decode()
    assert operator.post("/timeline/share/end", {"link": made.pk, "reason": "done"}).status_code == 302
    assert "No active links." in operator.get("/timeline/").content.decode()


def test_the_same_by_the_api(kept, browsers):
    operator = browsers["operator"]
    body = {"at": AT, "hours": 1, "reason": "for the mail room"}
    made = operator.post("/api/v1/shared-links", body, content_type="application/json")
    assert made.status_code == 201
    assert Client().get(made.json()["url"]).status_code == 200
    assert operator.get("/api/v1/shared-links").json()["links"] == [made.json()]
    end = f"/api/v1/shared-links/{made.json()['id']}/end"
    assert operator.post(end, {"reason": "done"}, content_type="application/json").status_code == 200
    assert operator.get("/api/v1/shared-links").json()["links"] == []
    missing = operator.post("/api/v1/shared-links/9/end", {"reason": "x"}, content_type="application/json")
    assert missing.status_code == 404


def test_what_somebody_has_shared_ends_with_their_access_and_others_links_stay(kept, browsers, people, secrets):
    """By themselves or with a token of theirs; a token that is revoked alone takes its own along."""

    def opens(*links):
        return [Client().get(shared_links.format_link_address(each)).status_code == 200 for each in links]

    own, by_token = (shared(actor=Actor("operator", "operator")), shared(actor=Actor("token:of-operator", "operator")))
    others = shared(actor=Actor("token:of-administrator", "administrator"))
    tokens.revoke(Actor("operator", "operator", user=people["operator"]), of("of-operator"), timezone.now())
    assert opens(own, by_token, others) == [True, False, True]
    again = shared(actor=Actor("token:of-viewer", "operator"))
    ApiToken.objects.filter(name="of-viewer").update(owner=people["operator"])
    posted = {"change": "disable", "reason": "she has left"}
    browsers["administrator"].post(f"/settings/users/{people['operator'].pk}", posted)
    assert opens(own, again, others) == [False, False, True]


def of(name):
    return ApiToken.objects.get(name=name)


def test_links_that_are_long_over_are_forgotten_and_stay_in_the_audit(kept):
    old, ended = shared(), shared()
    shared_links.end(OPERATOR, ended, reason="enough", now=timezone.now())
    SharedLink.objects.filter(pk=old.pk).update(expires_at=timezone.now() - shared_links.RETAINED)
    new = shared()
    assert set(SharedLink.objects.values_list("pk", flat=True)) == {ended.pk, new.pk}
    assert AuditEntry.objects.filter(action="link.make").count() == 3
