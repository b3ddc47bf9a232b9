"""Dead letters of all queues: found by the address, put in again, mended, discarded, each as it was seen."""

import json
from collections import Counter

import pytest
from django.test import Client

from bench.queues.bit_flips import flip_bit, rewrite_entries
from common.errors import NodeUnavailable
from console.actions import dead_letter_steering, dead_letters
from console.models import AuditEntry
from queues.events.block import BlockIds, cut, from_events
from queues.models import Container, Node, Queue
from queues.segments.dead_letters import DeadLetters
from queues.segments.segment import Segment
from tests.console.page_form import audited, fetch
from tests.queues.samples import blocks_of

pytestmark = pytest.mark.django_db
ACT = "/dead-letters/act"
REASON = {"reason": "the sink is back"}


@pytest.fixture
def many(poisoned):
    """Besides a letter of alert on n1 and n2 ("no"): 60 letters of orders on n1, each of four events."""
    queue = Queue.objects.create(name="orders", kind="jobs")
    Container.objects.create(queue=queue, node=Node.objects.get(name="n1"), points=1000)
    segment = Segment(poisoned["n1"].client(), "orders")
    segment.publish(blocks_of(240))
    for each in segment.claim("worker-7", 1_000, 60):
        segment.move_to_dead_letters(
            each, "worker-7", [(each.block().build_explicit_batch(), "Timeout: the shop does not answer")]
        )
    return poisoned


def listed(browser, query=""):
    """The names of the letters on the page."""
    return [str(letter.name) for letter in browser.get(f"/dead-letters/{query}").context["page_obj"]]


def all_of(browser, query):
    """What the form of a page posts when all that fit are chosen."""
    page = browser.get(f"/dead-letters/?{query}")
    found = page.context["listing"]
    shown = {"through": page.context["through"], "digest": found.digest, "count": len(found.letters)}
    return {**page.context["carried"], **shown, "all": "1", **REASON}


def waiting(server, queue):
    counters = Segment(server.client(), queue).get_counters()
    return counters["inserted_events"] - counters["removed_events"]


@pytest.mark.parametrize(
    ("query", "count"),
    [
        ("", 62),
        ("queue=orders&error=timeout", 60),
        ("error=no", 62),  # also in "not answer"
        ("type=a", 2),
        ("type=cpu&worker=worker-7", 60),
        ("to=2020-01-01T00:00", 0),
    ],
)
def test_the_address_chooses_which_letters_are_listed(query, count, operator, many, control):
    page = operator.get(f"/dead-letters/?{query}")
    assert len(page.context["listing"].letters) == count
    assert len(page.context["page_obj"]) == min(count, 50)


@pytest.mark.parametrize(
    ("query", "field"),
    [("queue=ghost", "queue"), ("from=soon", "from"), ("from=2026-02-01T00:00&to=2026-01-01T00:00", "to")],
)
def test_a_filter_that_cannot_be_is_said_and_chooses_nothing(query, field, operator, many, control):
    page = operator.get(f"/dead-letters/?{query}")
    assert list(page.context["errors"]) == [field] and not page.context["listing"].letters


def test_of_large_letters_no_more_are_read_than_a_process_has_room_for(operator, many, control, monkeypatch):
    newest = dead_letters.Name.read(listed(operator, "?queue=orders")[0])
    size_bytes = len(dead_letters.find("orders", "n1", newest.id).stored.data)
    monkeypatch.setattr(dead_letters, "MAX_SCANNED_BYTES", 10 * size_bytes)
    page = operator.get("/dead-letters/?queue=orders")
    found = page.context["listing"]
    assert 8 <= len(found.letters) == found.scanned < 13 and found.more
    assert f"of the first {found.scanned} dead" in " ".join(page.content.decode().split())


def test_some_letters_are_put_in_again_and_the_others_stay(operator, poisoned, control):
    first, second = listed(operator)
    answer = fetch(operator, ACT, {"action": "requeue", "letter": [first], **REASON}).json()
    assert (answer["letters"], answer["events"], answer["refused"]) == (1, 1, [])
    assert listed(operator) == [second]
    assert audited() == [("operator", "dead_letters.requeue", "alert")] * 2  # begun, and done
    assert AuditEntry.objects.latest("id").after == {"letters": 1, "events": 1, "refused": []}


def test_all_that_fit_are_put_in_again_and_later_ones_are_not_meant(operator, many, control):
    posted = {**all_of(operator, "queue=orders"), "action": "requeue"}
    segment = Segment(many["n1"].client(), "orders")
    segment.publish(blocks_of(4, first=1_000))
    (late,) = segment.claim("worker-9", 10, 60)
    segment.move_to_dead_letters(late, "worker-9", [(late.block().build_explicit_batch(), "later")])
    answer = fetch(operator, ACT, posted).json()
    assert (answer["letters"], answer["events"]) == (60, 240)
    assert answer["message"] == "60 dead letters (240 events) requeued."
    assert waiting(many["n1"], "orders") == 240
    assert [letter.error for letter in DeadLetters(segment).read()] == ["later"]


def test_what_no_longer_fits_as_it_was_counted_is_refused_whole(operator, many, control):
    posted = {**all_of(operator, "queue=orders"), "action": "requeue"}
    fetch(operator, ACT, {"action": "requeue", "letter": listed(operator, "?queue=orders")[:2], **REASON})
    answer = fetch(operator, ACT, posted)
    assert answer.status_code == 422
    assert "60 were shown and 58" in answer.json()["errors"]["letter"][0]
    assert waiting(many["n1"], "orders") == 8


def test_a_letter_that_is_gone_or_changed_is_refused_by_itself(operator, many, control):
    names = listed(operator, "?queue=orders")[:3]
    fetch(operator, ACT, {"action": "requeue", "letter": [names[0]], **REASON})
    changed = names[1].rpartition("/")[0] + "/" + "0" * 40
    answer = fetch(operator, ACT, {"action": "requeue", "letter": [names[0], changed, names[2]], **REASON})
    assert answer.status_code == 200
    report = answer.json()
    assert (report["letters"], report["events"]) == (1, 4)
    assert {each["letter"]: each["why"] for each in report["refused"]} == {
        f"n1 {names[0].split('/')[2]}": "was requeued, amended, or discarded in the meantime",
        f"n1 {names[1].split('/')[2]}": "has changed since it was shown; open it again",
    }
    again = fetch(operator, ACT, {"action": "requeue", "letter": [names[0]], **REASON})
    assert (again.status_code, list(again.json()["errors"])) == (422, ["letter"])
    assert waiting(many["n1"], "orders") == 8


def test_discarding_asks_for_the_queues_name_and_is_one_queues(operator, many, control):
    posted = {**all_of(operator, "queue=alert"), "action": "discard"}
    assert list(fetch(operator, ACT, posted).json()["errors"]) == ["confirm"]
    assert list(fetch(operator, ACT, {**posted, "confirm": "orders"}).json()["errors"]) == ["confirm"]
    everything = {**all_of(operator, ""), "action": "discard", "confirm": "alert"}
    assert list(fetch(operator, ACT, everything).json()["errors"]) == ["queue"]
    assert len(listed(operator, "?queue=alert")) == 2 and audited() == []
    assert fetch(operator, ACT, {**posted, "confirm": "alert"}).json()["letters"] == 2
    assert listed(operator, "?queue=alert") == [] and waiting(many["n2"], "alert") == 0


@pytest.mark.parametrize(
    ("posted", "field"),
    [
        ({"action": "burn", "letter": "alert/n1/1-0/x", **REASON}, "action"),
        ({"action": "requeue", "letter": "alert/n1/1-0/x"}, "reason"),
        ({"action": "requeue", **REASON}, "letter"),
        ({"action": "requeue", "letter": "alert/n9/1-0/x", **REASON}, "letter"),
        ({"action": "requeue", "letter": "alert/n1/x/x", **REASON}, "letter"),
        ({"action": "requeue", "all": "1", "through": "soon", **REASON}, "through"),
        ({"action": "requeue", "all": "1", "through": "2026-01-01T00:00Z", "count": "x", **REASON}, "count"),
    ],
)
def test_a_bad_choice_of_letters_is_refused(posted, field, operator, poisoned, control):
    answer = fetch(operator, ACT, posted)
    assert (answer.status_code, list(answer.json()["errors"])) == (422, [field])
    assert len(listed(operator)) == 2 and audited() == []


def test_letters_of_a_node_that_is_away_stay_and_the_others_are_done_and_said(operator, poisoned, stored_snapshot):
    chosen = {name.split("/")[1]: name for name in listed(operator)}
    counted = all_of(operator, "queue=alert")
    poisoned["n2"].kill()
    assert list(fetch(operator, ACT, {**counted, "action": "requeue"}).json()["errors"]) == ["letter"]
    posted = {"action": "discard", "letter": list(chosen.values()), "confirm": "alert", **REASON}
    report = fetch(operator, ACT, posted).json()
    assert (report["letters"], report["events"]) == (1, 1)
    (refused,) = report["refused"]
    assert refused["letter"] == f"n2 {chosen['n2'].split('/')[2]}"
    assert refused["why"].startswith("state unknown: ") and "is not responding" in refused["why"]
    assert audited() == [("operator", "dead_letters.discard", "alert")] * 2
    assert AuditEntry.objects.latest("id").after["refused"] == [refused]
    # Where nothing at all was done the node is named, and that nothing was changed is not claimed.
    answer = operator.post(ACT, {"action": "requeue", "letter": chosen["n2"], **REASON})
    assert answer.status_code == 503 and "is not responding" in answer.content.decode()
    assert "Nothing was changed" not in answer.content.decode()
    page = operator.get("/dead-letters/")
    assert page.context["listing"].unreachable == ["n2"] and not page.context["listing"].letters
    for address in ("/dead-letters/", "/queues/alert/"):
        text = operator.get(address).content.decode()
        assert "No dead letters on the responding nodes." in text
        assert "No event has failed" not in text and "No dead letters." not in text


def test_a_node_that_fails_in_the_middle_has_done_what_it_was_asked_before(monkeypatch, many):
    monkeypatch.setattr(dead_letter_steering, "CHUNK", 20)
    place = DeadLetters(Segment(many["n1"].client(), "orders"))
    shown = {letter.dead_id: letter.digest for letter in place.read(60)}
    real, asked = place.discard, []

    def failing(chunk):
        asked.append(len(chunk))
        if len(asked) == 2:
            raise NodeUnavailable("n1 is not responding.")
        return real(chunk)

    monkeypatch.setattr(place, "discard", failing)
    answers, error = dead_letter_steering._run_at(place, "discard", shown)
    assert asked == [20, 20] and isinstance(error, NodeUnavailable)
    assert Counter(answers.values()) == {
        4: 20, "state unknown: n1 is not responding": 20, "unchanged: n1 is not responding": 20
    }  # fmt: skip


def mend(browser, name, digest=None, **fields):
    queue, node, dead_id, shown = name.split("/")
    posted = {f"event-{field}": text for field, text in fields.items()}
    return fetch(
        browser, f"/dead-letters/{queue}/{node}/{dead_id}/fix", {**posted, "digest": digest or shown, **REASON}
    )


ODD = {
    "type": " a\n", "key": "A7 ", "source": "till 4\r\n", "attributes": '\n{"unit":\r\n "%"}\n',
    "time": "2026-01-05T03:00:00.000001Z",
}  # fmt: skip


def as_shown(browser, address):
    """The fields of an event as a browser sends what it was shown: a line has no line ends, a text area has
    others, and not the first.
    """
    form = browser.get(address).context["form"]
    lines = {field: text.replace("\r", "").replace("\n", "") for field, text in form.items()}
    area = form["attributes"].replace("\r\n", "\n").removeprefix("\n").replace("\n", "\r\n")
    return {**lines, "attributes": area}


def add_odd(server, value):
    """A letter whose event a form can't hold whole."""
    segment = Segment(server.client(), "alert")
    event = {"id": "odd", **ODD, "value": value}
    segment.publish(cut(from_events([event], now_us=1_000_000), BlockIds()))
    (claimed,) = segment.claim("a worker", 10, 60)
    segment.move_to_dead_letters(claimed, "a worker", [(claimed.block().build_explicit_batch(), "odd")])


@pytest.mark.parametrize("value", [0.30000000000000004, 1_790_000_000_123_456.0, 5.0, None])
def test_what_nobody_touched_of_an_event_stays_as_it_is(value, operator, poisoned, control):
    add_odd(poisoned["n1"], value)
    (name,) = listed(operator, "?error=odd")
    address = f"/dead-letters/{name.rpartition('/')[0]}/"
    before = operator.get(address).context["letter"].events[0]
    shown = as_shown(operator, address)
    assert list(mend(operator, name, **shown).json()["errors"]) == ["event"], "nothing was changed"
    answer = mend(operator, name, **{**shown, "type": "b"})
    after = operator.get(answer.json()["go"]).context["letter"].events[0]
    assert after == {**before, "type": "b"}


def test_an_event_is_mended_and_its_original_is_in_the_audit(operator, poisoned, control):
    name = listed(operator)[0]
    address = mend(operator, name, type="b", value="2.5", attributes='{"unit": "%"}').json()["go"]
    letter = operator.get(address).context["letter"]
    (event,) = letter.events
    assert (event["type"], event["value"], event["attributes"]) == ("b", 2.5, '{"unit": "%"}')
    assert event["id"].startswith("e-n") and letter.stored.fixes == 1
    assert operator.get("/dead-letters/" + name.rpartition("/")[0] + "/").status_code == 404
    begun = AuditEntry.objects.order_by("id").first()
    assert (begun.action, begun.before["event"]["type"]) == ("dead_letters.fix", "a")
    ended = AuditEntry.objects.filter(action="dead_letters.fix").latest("id")
    assert ended.after["event"]["value"] == 2.5
    answer = fetch(operator, ACT, {"action": "requeue", "letter": str(letter.name), **REASON})
    assert answer.json()["letters"] == 1


@pytest.mark.parametrize(
    ("fields", "field"),
    [
        ({"value": "inf"}, "event-value"),
        ({"time": "yesterday"}, "event-time"),
        ({"attributes": "[1]"}, "event-attributes"),
        ({"type": "x" * 100_000}, "event-type"),
        ({"type": "a"}, "event"),  # as it was
    ],
)
def test_an_event_that_cannot_be_is_refused_at_its_field(fields, field, operator, poisoned, control):
    name = listed(operator)[0]
    answer = mend(operator, name, **fields)
    assert (answer.status_code, list(answer.json()["errors"])) == (422, [field])
    assert name in listed(operator)


def test_mending_a_letter_that_changed_meanwhile_is_refused(operator, poisoned, control):
    name = listed(operator)[0]
    assert list(mend(operator, name, digest="0" * 40, type="b").json()["errors"]) == ["letter"]
    mend(operator, name, type="b")
    assert list(mend(operator, name, type="c").json()["errors"]) == ["letter"]


def test_a_refused_form_keeps_what_was_typed(operator, poisoned, control):
    queue, node, dead_id, digest = listed(operator)[0].split("/")
    typed = {"event-value": "much", "event-type": "odd", "digest": digest, **REASON}
    page = operator.post(f"/dead-letters/{queue}/{node}/{dead_id}/fix", typed)
    assert page.status_code == 422
    for text in ('value="much"', 'value="odd"', f'value="{REASON["reason"]}"'):
        assert text in page.content.decode()


def test_the_api_lists_mends_requeues_and_discards(secrets, many, control):
    headers = {"HTTP_AUTHORIZATION": f"Bearer {secrets['operator']}"}

    def post(address, body):
        kind = "application/json"
        return Client().post(
            f"/api/v1/dead-letters/{address}", json.dumps({**body, **REASON}), content_type=kind, **headers
        )

    def get(query):
        return Client().get(f"/api/v1/dead-letters{query}", **headers).json()

    found = get("?queue=alert&rows=1")
    (letter,) = found["letters"]
    assert (found["count"], letter["queue"], letter["events"][0]["type"]) == (2, "alert", "a")
    body = {"digest": letter["name"].split("/")[3], "event": {"type": "b"}}
    mended = post(f"alert/{letter['node']}/{letter['id']}/fix", body).json()
    assert mended["events"][0]["type"] == "b"
    assert get(f"/alert/{mended['node']}/{mended['id']}")["fixes"] == 1
    assert post("requeue", {"letters": [mended["name"]]}).json()["events"] == 1
    counted = {name: found[name] for name in ("through", "digest", "count")}
    assert post("discard", {"filter": {"queue": "alert"}, "confirm": "alert", **counted}).status_code == 422
    again = get("?queue=orders")
    counted = {name: again[name] for name in ("through", "digest", "count")}
    report = post("discard", {"filter": {"queue": "orders"}, "confirm": "orders", **counted}).json()
    assert (report["letters"], report["refused"]) == (60, [])
    assert Client().get("/api/v1/dead-letters/orders/n1/1-0", **headers).status_code == 404


@pytest.fixture
def damaged(poisoned, control):
    """The name of a letter that holds a damaged block."""
    segment = Segment(poisoned["n1"].client(), "alert")
    segment.publish(blocks_of(4))
    rewrite_entries(segment.node, segment.stream, lambda place, parts: [*parts[:-1], flip_bit(parts[-1], 777)])
    for each in segment.claim("w1", 100, 60):
        segment.quarantine(each.entry_id, each.damage, "w1")
    letter = DeadLetters(segment).read()[-1]
    return f"alert/n1/{letter.dead_id}/{letter.digest}"


def test_a_damaged_letter_is_shown_with_what_it_held_and_offers_no_requeue(operator, damaged):
    assert damaged in listed(operator, "?type=damaged")
    page = operator.get(f"/dead-letters/{damaged.rpartition('/')[0]}/").content.decode()
    assert "Damaged events" in page and "4 events, newest" in page
    assert 'value="requeue"' not in page and 'value="discard"' in page
    row = operator.get(f"/api/v1/dead-letters/{damaged.rpartition('/')[0]}").json()
    assert (row["is_damaged"], row["events"], row["event_count"]) == (True, [], 4)
    stored = operator.get(f"/dead-letters/{damaged.rpartition('/')[0]}/bytes").content
    assert stored == flip_bit(blocks_of(4)[0].data.to_pybytes(), 777)


def test_a_damaged_letter_is_not_requeued_or_mended_and_its_discard_is_audited(operator, damaged):
    answer = fetch(operator, ACT, {"action": "requeue", "letter": damaged, **REASON})
    assert answer.status_code == 422 and "is damaged" in answer.json()["errors"]["letter"][0]
    assert "is damaged" in mend(operator, damaged, type="b").json()["errors"]["letter"][0]
    posted = {"action": "discard", "letter": damaged, "confirm": "alert", **REASON}
    assert fetch(operator, ACT, posted).json()["events"] == 4
    assert ("operator", "dead_letters.discard", "alert") in audited()
