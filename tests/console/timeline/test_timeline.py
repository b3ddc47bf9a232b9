"""The timeline: one window, read from the address; what happened in it, at its place; exported whole."""

import csv
import io
import re
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from zoneinfo import ZoneInfo

import orjson
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from common.errors import BadInput
from console.accounts.access import Actor
from console.actions import marks
from console.actions.marks import RolloutMarks
from console.models import Mark
from console.timeline import happenings
from console.timeline import happenings as bars_of_a_lane
from console.timeline.strips import PATHS, build_figures, format_state_path
from console.timeline.window import MAX_TIMES, Window, compute_time_ticks, compute_value_ticks, parse_window
from queues import keys
from queues.models import Node
from tests.workers.history.test_metric_history import roll_up
from workers.alerts.lifecycle.models import Alert
from workers.documents.plants import PlantStatus
from workers.documents.snapshot import Snapshot
from workers.history.snapshot_archive import Recorder
from workers.models import LedgerEntry, Loop, Override

pytestmark = pytest.mark.django_db


NOW = datetime(2026, 11, 20, 3, 40, tzinfo=UTC)
MINUTE = timedelta(minutes=1)
HOUR = Window(NOW - 60 * MINUTE, NOW)
FIXED = {"from": "2026-11-20T02:50:00Z", "to": "2026-11-20T03:40:00Z"}


# The window


def test_an_instant_alone_stands_in_the_middle_of_its_window_but_never_beyond_now():
    assert parse_window({"at": "2026-11-20T02:00:00Z"}, NOW).share(datetime(2026, 11, 20, 2, tzinfo=UTC)) == 0.5
    assert parse_window({"at": "2026-11-20T03:39:00Z"}, NOW).until == NOW


@pytest.mark.parametrize(
    ("query", "field"),
    [
        ({"minutes": "0"}, "minutes"),
        ({"minutes": "soon"}, "minutes"),
        ({"from": FIXED["from"]}, "to"),
        ({"to": FIXED["to"]}, "from"),
        ({"from": FIXED["to"], "to": FIXED["from"]}, "to"),
        ({"from": "yesterday", "to": FIXED["to"]}, "from"),
        ({"from": "2020-01-01T00:00:00Z", "to": FIXED["to"]}, "from"),
        ({"from": "2026-11-20T04:00:00Z", "to": "2026-11-20T05:00:00Z"}, "from"),
        ({**FIXED, "at": "2026-11-20T01:00:00Z"}, "at"),
        ({"at": "2026-11-21T00:00:00Z"}, "at"),
    ],
)
def test_a_window_that_can_not_be_is_refused_by_its_field(query, field):
    with pytest.raises(BadInput) as error:
        parse_window(query, NOW)
    assert error.value.field == field


moments = st.integers(0, 323 * 86_400).map(lambda second: datetime(2026, 1, 1, tzinfo=UTC) + timedelta(seconds=second))


@given(moments, st.integers(10, 400 * 86_400), st.floats(0, 1))
def test_an_address_leads_back_to_its_window(since, seconds, share):
    until = min(since + timedelta(seconds=seconds), NOW)
    if until - since < timedelta(seconds=10):
        return
    at = (since + share * (until - since)).replace(microsecond=0)
    window = Window(since, until, at=max(at, since))
    query = dict(pair.split("=") for pair in window.fixed_query.replace("%3A", ":").split("&"))
    assert parse_window(query, NOW) == window


@given(st.integers(10, 100 * 86_400), st.sampled_from([-1.0, -0.5, 0.5, 1.0, 3.0]))
def test_moving_keeps_the_length_and_never_leads_beyond_now(seconds, shares):
    window = Window(NOW - timedelta(seconds=seconds), NOW)
    moved = window.shift(shares, NOW)
    assert moved.seconds == pytest.approx(seconds)
    assert moved.until <= NOW


# The axis


@given(
    moments,
    st.integers(10, 400 * 86_400),
    st.sampled_from(["UTC", "Europe/Berlin", "America/St_Johns", "Asia/Kathmandu"]),
)
def test_ticks_are_few_and_round_in_the_readers_zone(since, seconds, name):
    zone = ZoneInfo(name)
    window = Window(since, since + timedelta(seconds=seconds))
    ticks = compute_time_ticks(window, zone)
    assert 1 <= len(ticks) <= MAX_TIMES + 1 or seconds < 60
    assert all(0 <= tick.share <= 1 for tick in ticks)
    for tick in ticks:
        local = tick.at.astimezone(zone)
        assert local.second == 0 or tick.format == "clock"
        assert (local.hour, local.minute) == (0, 0) or tick.format != "day"


def test_days_begin_at_midnight_also_when_the_clocks_change():
    window = Window(datetime(2026, 10, 22, 12, tzinfo=UTC), datetime(2026, 10, 27, 12, tzinfo=UTC))
    hours = [tick.at.astimezone(UTC).hour for tick in compute_time_ticks(window, ZoneInfo("Europe/Berlin"))]
    assert hours == [22, 22, 22, 23, 23]  # the clocks go back in the night to the 25th


@given(st.floats(1e-6, 1e12))
def test_values_have_few_round_ticks_from_nothing_to_above_the_highest(highest):
    ticks = compute_value_ticks(highest)
    assert ticks[0] == 0 and ticks[-1] >= highest * (1 - 1e-6)
    assert 2 <= len(ticks) <= 5
    assert compute_value_ticks(0) == [0, 1]


# Figures


def columns_of(rows, nodes=()):
    """Rows by their second before NOW, as `metric_history` gives them."""
    names = [*PATHS, *map(format_state_path, nodes)]
    at = sorted(NOW.timestamp() + second for second in rows)
    by_time = {NOW.timestamp() + second: row for second, row in rows.items()}
    return {"at": at, **{name: [by_time[each].get(name) for each in at] for name in names}}


def test_a_line_is_lifted_where_nothing_was_measured():
    seconds = [*range(-600, -300), *range(-200, 0)]
    found = columns_of({second: {"totals.in_per_second": 10.0} for second in seconds})
    (rate, *_) = build_figures(Window(NOW - 10 * MINUTE, NOW), found, []).strips
    assert rate.lines[0].path.count("M") == 2
    assert rate.lines[1].path == ""


def test_nodes_are_bands_of_their_states_and_unknown_where_nothing_was_heard():
    state = format_state_path("n1")
    rows = {second: {state: 1.0 if second < -300 else 3.0} for second in range(-600, -60)}
    window = Window(NOW - 10 * MINUTE, NOW)
    (node,) = build_figures(window, columns_of(rows, ("n1",)), ["n1"]).nodes
    assert [band.state for band in node.bands] == ["NORMAL", "TOOBUSY"]
    assert node.bands[0].end == pytest.approx(0.5) == node.bands[1].begin
    assert node.bands[1].end == pytest.approx(0.9, abs=0.01)
    assert node.now is None


def test_of_many_nodes_the_worst_are_shown_in_their_order_and_the_rest_counted():
    names = [f"n{number:03}" for number in range(200)]
    states = {format_state_path(name): 3.0 if name in ("n007", "n150") else 1.0 for name in names}
    rows = dict.fromkeys(range(-60, 0, 10), states)
    figures = build_figures(Window(NOW - MINUTE, NOW), columns_of(rows, tuple(names)), names)
    shown = [node.name for node in figures.nodes]
    assert {"n007", "n150"} <= set(shown) and shown == sorted(shown)
    assert len(shown) + figures.calm_nodes == 200


# What happened


def act(loop, before, verdict="effective", **fields):
    values = {"mode": "auto", "parameters": {}, "reason": "9,000 events wait.", "action": {"start": 3}}
    return LedgerEntry.objects.create(loop=loop, at=NOW - before, verdict=verdict, **{**values, **fields})


def test_a_decision_alone_leads_to_its_entry_and_says_its_reason(loop):
    entry = act(loop, 30 * MINUTE)
    act(loop, 20 * MINUTE, "no action", action=None)
    act(loop, 90 * MINUTE)
    ((lane, (sign,)),) = [(lane.law, lane.triangles) for lane in happenings.build_law_lanes(HOUR)]
    assert lane == "worker_rate"
    assert (sign.url, sign.title, sign.verdict) == (f"/ledger/{entry.pk}/", entry.reason, "effective")
    assert sign.share == pytest.approx(0.5)


def test_decisions_too_near_to_one_another_are_one_sign_as_grave_as_the_worst(loop):
    place = timedelta(seconds=NOW.timestamp() % (3_600 // happenings.BUCKETS)) + 11 * MINUTE
    for second in range(5):
        act(loop, place - timedelta(seconds=20 + second), "harmful" if second == 2 else "effective")
    (lane,) = happenings.build_law_lanes(HOUR)
    (sign,) = lane.triangles
    assert (sign.count, sign.verdict, lane.decisions) == (5, "harmful", 5)
    assert sign.url.startswith("/ledger/?law=worker_rate&acted=1&from=2026-11-20T03%3A2")


def test_what_the_guard_limited_is_counted_by_stretches_and_leads_to_its_decisions(loop, browsers):
    for second in (100, 101, 102, 1_800):
        entry = {"mode": "auto", "parameters": {}, "reason": "No action", "limited_by": "guard slew"}
        LedgerEntry.objects.create(loop=loop, at=HOUR.since + timedelta(seconds=second), **entry)
    LedgerEntry.objects.create(
        loop=loop, at=HOUR.since + timedelta(seconds=100), mode="auto", parameters={}, reason="free"
    )
    events = happenings.list_guard_events(HOUR, loop.pk)
    assert sum(each.count for each in events) == 4 and events == sorted(events, key=lambda each: each.at)
    assert all(each.title.startswith("Guard: slew, ") for each in events)
    page = browsers["viewer"].get(events[-1].url)
    assert [row.at for row in page.context["listed"].rows] == [HOUR.since + timedelta(seconds=1_800)]
    asked = {"loop": loop.pk, "from": HOUR.since.timestamp(), "to": HOUR.until.timestamp()}
    answer = browsers["viewer"].get("/api/v1/decisions", asked).json()
    assert [each["limited_by"] for each in answer["guard"]] == ["guard slew"] * len(events)


OVERLAPPING = [(0.5, 0.25, ""), (0.625, 0.0, ""), (0.625, 0.0, ""), (0.625, 0.25, ""), (0.8125, 0.0, "a" * 15)]


@example(OVERLAPPING)
@given(st.lists(st.tuples(st.floats(0, 1), st.floats(0, 0.3), st.text("abc ", max_size=40)), max_size=30))
def test_neither_bars_nor_labels_of_a_row_meet_however_many_there_are(wanted):
    placed = bars_of_a_lane.arrange_in_rows(
        [
            bars_of_a_lane.Bar(begin, min(1.0, begin + width), "note", label, "", NOW, None)
            for begin, width, label in sorted(wanted)
        ]
    )
    assert all(bar.row < bars_of_a_lane.MAX_ROWS for bar in placed)
    for row in range(bars_of_a_lane.MAX_ROWS - 1):
        for one, other in pairwise(bar for bar in placed if bar.row == row):
            assert other.begin >= one.end
    for row, space in (("row", "space"), ("phone_row", "phone_space")):
        by_row = {}
        for bar in placed:
            room = getattr(bar, space)
            first = bar.begin - room if bar.before else bar.label_begin
            by_row.setdefault(getattr(bar, row), []).append((first, first + room))
        for labels in by_row.values():
            for one, other in pairwise(sorted(labels)):
                assert one[1] <= other[0] + 1e-9
            assert all(first >= -1e-9 and last <= 1 + 1e-9 for first, last in labels)


LOG = """2026-11-20 02:00:00,100 INFO supervisord started with pid 7
2026-11-20 02:00:01,100 INFO spawned: 'pipeline' with pid 11
2026-11-20 02:00:01,200 INFO spawned: 'web' with pid 12
2026-11-20 02:00:04,000 INFO success: web entered RUNNING state
2026-11-20 02:10:00,000 WARN exited: pipeline (terminated by SIGKILL; not expected)
2026-11-20 02:10:01,000 INFO spawned: 'pipeline' with pid 13
"""


def test_restarts_are_marks_with_how_the_run_before_ended(tmp_path, monkeypatch):
    (tmp_path / "logs").mkdir()
    (tmp_path / "logs" / "supervisor.log").write_text(LOG)
    local = datetime(2026, 11, 20, 2, 0, 0).astimezone(UTC)
    window = Window(local - MINUTE, local + 30 * MINUTE)
    marks = happenings.build_restart_bars(window, tmp_path).bars
    assert [(bar.label, bar.title) for bar in marks] == [
        ("Weir started", "Weir started"),
        ("pipeline", "pipeline restarted (previous run: terminated by SIGKILL)"),
    ]
    assert marks[1].at == local + timedelta(minutes=10, seconds=1)


def test_without_a_supervisor_s_log_there_are_no_restarts(tmp_path):
    assert happenings.build_restart_bars(HOUR, tmp_path).bars == []


def test_overrides_and_alerts_are_as_long_as_they_were(people, loop):
    Override.objects.create(
        loop=loop, name="upper_limit", value=500, owner=people["operator"], reason="a burst",
        created_at=NOW - 30 * MINUTE, expires_at=NOW + 30 * MINUTE, ended_at=NOW - 15 * MINUTE,
    )  # fmt: skip
    fields = {"rule_name": "r", "condition": "c", "labels": {}, "threshold": 1.0}
    fired = {"began_at": NOW - 90 * MINUTE, "fired_at": NOW - 90 * MINUTE}
    whole = Alert.objects.create(fingerprint="a", severity="critical", title="n2 lost", **fields, **fired)
    Alert.objects.create(fingerprint="b", severity="warning", title="its queue", under=whole, **fields, **fired)
    Alert.objects.create(fingerprint="c", severity="warning", title="pending", began_at=NOW, **fields)
    (override,) = happenings.build_override_bars(HOUR).bars
    (alert,) = happenings.build_alert_bars(HOUR).bars
    assert (override.begin, override.end) == (0.5, 0.75)
    assert "upper limit 500" in override.label and "a burst" in override.title
    assert (alert.label, alert.begin, alert.end, alert.state) == ("n2 lost", 0.0, 1.0, "TOOBUSY")


def test_of_more_than_there_is_room_for_the_newest_are_shown_and_how_many_there_are(
    loop, people, browsers, settings, control, tmp_path, monkeypatch
):
    settings.WEIR_DATA = tmp_path
    monkeypatch.setattr(happenings, "MAX_BARS", 3)
    fields = {"rule_name": "r", "condition": "c", "labels": {}, "threshold": 1.0, "severity": "warning"}
    held = {"loop": loop, "name": "upper_limit", "value": 1, "owner": people["operator"], "reason": "r"}
    for place in range(6):
        at = NOW - (50 - place) * MINUTE
        ended = None if place == 0 else at + MINUTE  # the oldest goes on
        times = {"began_at": at, "fired_at": at, "resolved_at": ended}
        Alert.objects.create(fingerprint=str(place), title=f"a{place}", **fields, **times)
        Override.objects.create(**held, created_at=at, ended_at=ended, expires_at=NOW + MINUTE)
        Mark.objects.create(title=f"m{place}", at=at, author="a", kind=Mark.Kind.NOTE)
    alerts, found = happenings.build_alert_bars(HOUR), happenings.build_mark_bars(HOUR)
    assert ([bar.label for bar in alerts.bars], alerts.count) == (["a0", "a4", "a5"], 6)
    assert ([bar.label for bar in found.bars], found.count) == (["m3", "m4", "m5"], 6)
    overrides = happenings.build_override_bars(HOUR)
    assert [bar.at for bar in overrides.bars] == [NOW - (50 - place) * MINUTE for place in (0, 4, 5)]
    page = browsers["viewer"].get("/timeline/", FIXED)
    assert " ".join(page.content.decode().split()).count("newest 3 of 6") == 3


def test_a_chart_is_given_the_decisions_of_what_it_shows(browsers, loop):
    whole = Loop.objects.create(name="rebalancing", law="rebalancing")
    other = Loop.objects.create(name="worker_rate/alert/n2", law="worker_rate", target={"queue": "alert", "node": "n2"})
    entries = {each.name: act(each, (10 + 5 * place) * MINUTE) for place, each in enumerate((loop, whole, other))}
    asked = {"from": HOUR.since.timestamp(), "to": HOUR.until.timestamp()}

    def shown(**about):
        rows = browsers["viewer"].get("/api/v1/decisions", {**asked, **about}).json()["decisions"]
        return {name for name, entry in entries.items() if f"/ledger/{entry.pk}/" in {row["url"] for row in rows}}

    assert shown() == set(entries)
    assert shown(node="n1") == {loop.name, whole.name}
    assert shown(queue="process") == {whole.name}
    Loop.objects.filter(pk=loop.pk).update(target={"host": "jobs@here"})
    assert shown(queue="alert") == {whole.name, other.name}, "a pool's loop steers no queue"
    assert shown(loop=other.pk) == {other.name}
    refused = browsers["viewer"].get("/api/v1/decisions", {"from": 1, "to": 1e18})
    assert (refused.status_code, list(refused.json()["errors"])) == (422, ["to"])


# The page


@pytest.fixture
def past(control, settings, tmp_path, snapshot):
    """Ten measured minutes before NOW, the snapshots of the last of them, and a deploy."""
    settings.WEIR_DATA = tmp_path
    Node.objects.create(name="n1", url="redis://127.0.0.1:1/0")
    recorder = Recorder(tmp_path)
    for second in range(-600, 0):
        at = NOW.timestamp() + second
        values = {"totals.in_per_second": 100 + second / 100, format_state_path("n1"): 1}
        control.xadd(keys.METRICS, values, id=f"{round(at * 1000)}-0")
        recorder.add(at, orjson.dumps({**snapshot, "at": at}))
    marks.add(Actor("desk-2", "operator"), title="=agent <b>0.9.3</b>", kind="deploy", at=NOW - 5 * MINUTE, now=NOW)


RANGE = {"from": "2026-11-20T03:30:00Z", "to": "2026-11-20T03:40:00Z", "at": "2026-11-20T03:35:00Z"}


def test_the_page_shows_the_strips_and_the_plant_at_the_instant(viewer, past):
    context = viewer.get("/timeline/", RANGE).context
    assert context["shown"].figures.values["totals.in_per_second"] == pytest.approx(97, abs=0.1)
    assert context["plant"].snapshot.at == NOW.timestamp() - 300
    assert [bar.label for bar in context["shown"].bars[0].bars] == ["=agent <b>0.9.3</b>"]
    assert context["shown"].figures.nodes[0].now == "NORMAL"


def test_what_people_wrote_is_text_and_never_markup(viewer, past):
    for path in ("/timeline/", "/timeline/document.html"):
        text = viewer.get(path, RANGE).content.decode()
        assert "<b>0.9.3" not in text and "&lt;b&gt;0.9.3" in text


def test_an_address_that_can_not_be_is_answered_with_the_last_hour_and_why(viewer, past):
    answer = viewer.get("/timeline/", {"from": RANGE["to"], "to": RANGE["from"]})
    assert answer.context["window"].minutes == 60
    assert "must be after from" in answer.content.decode()


def test_the_page_is_there_while_the_control_server_is_away(viewer, past, settings):
    settings.REDIS_URL = "redis://127.0.0.1:1/0"
    answer = viewer.get("/timeline/", RANGE)
    assert answer.status_code == 200 and answer.context["shown"] is None
    assert viewer.get("/timeline/table.csv", RANGE).status_code == 503


def test_ticks_stand_in_the_zone_that_the_browser_sent(viewer, past):
    viewer.cookies["weir-zone"] = "Asia/Kathmandu"
    day = {"from": "2026-11-18T00:00:00Z", "to": "2026-11-20T03:00:00Z"}
    ticks = viewer.get("/timeline/", day).context["shown"].ticks
    assert {(tick.at.astimezone(UTC).minute) for tick in ticks} == {15}
    viewer.cookies["weir-zone"] = "../../etc/passwd"
    assert viewer.get("/timeline/", day).status_code == 200


def rows_of(answer):
    assert answer.streaming
    return list(csv.reader(io.StringIO(b"".join(answer.streaming_content).decode())))


def test_events_are_exported_and_no_cell_is_a_formula(viewer, past, loop):
    act(loop, 3 * MINUTE, reason="+1 worker")
    header, *rows = rows_of(viewer.get("/timeline/table.csv", {**RANGE, "what": "events"}))
    found = {row[2]: dict(zip(header, row, strict=True)) for row in rows}
    assert found["deploy"]["what"] == "'=agent <b>0.9.3</b>"
    assert (found["decision"]["subject"], found["decision"]["why"]) == ("worker_rate/alert/n1", "'+1 worker")


def test_the_exported_page_needs_nothing_but_itself(viewer, past, loop):
    act(loop, 3 * MINUTE)
    answer = viewer.get("/timeline/document.html", RANGE)
    text = answer.content.decode()
    assert "attachment" in answer["Content-Disposition"]
    assert not re.findall(r"<script|<link |src=|url\((?!\"#)|@import", text)
    addresses = re.findall(r'href="([^"]*)"', text)
    # A decision's link leads to the console that made the file, wherever the file is opened.
    assert any(address.startswith("http://testserver/ledger/") for address in addresses)
    assert all(address.startswith("http://testserver/") for address in addresses)
    assert "9,000 events wait." in text and "<svg" in text


# Marks from the page


def test_a_mark_is_made_and_removed_from_the_page(browsers, past):
    operator = browsers["operator"]
    posted = {"title": "load test", "kind": "note", "at": RANGE["from"], "until": RANGE["to"]}
    answer = operator.post("/timeline/marks", posted, headers={"accept": "application/json"})
    number = answer.json()["mark"]
    assert Mark.objects.get(pk=number).until == NOW
    refused = operator.post("/timeline/marks/remove", {"mark": number}, headers={"accept": "application/json"})
    assert "reason" in refused.json()["errors"]
    operator.post("/timeline/marks/remove", {"mark": number, "reason": "it was called off"})
    assert Mark.objects.get(pk=number).removed_at is not None


def test_a_long_range_is_exported_with_each_window_once_across_slices(viewer, control, settings, tmp_path, monkeypatch):
    settings.WEIR_DATA = tmp_path
    monkeypatch.setattr("console.timeline.export.SLICE_ROWS", 60)  # of a minute each: an hour
    roll_up(tmp_path, "1m", datetime(2026, 11, 19, tzinfo=UTC).timestamp(), [(1, 2)] * 600)
    asked = {"from": "2026-11-19T00:30:00Z", "to": "2026-11-19T08:30:00Z", "what": "figures"}
    _, *rows = rows_of(viewer.get("/timeline/table.csv", asked))
    times = [row[0] for row in rows]
    assert times[0] == "2026-11-19T00:30:00+00:00"
    assert times == sorted(set(times)) and len(times) == 8 * 60 * 2


SEEN_AT = 1_790_000_000.0


def seen_with(revision, at=SEEN_AT, state="seen", part="worker"):
    status = PlantStatus(kind="kubernetes", state=state, revisions={part: revision})
    return Snapshot(plant="main", at=at, plants={"shop": status})


def titles():
    return list(Mark.objects.order_by("pk").values_list("title", flat=True))


def test_a_new_revision_is_a_mark_and_the_first_that_is_seen_is_none():
    followed = RolloutMarks()
    for revision in ("6", "6", "7", "7"):
        followed.follow(seen_with(revision))
    [mark] = Mark.objects.all()
    assert (mark.kind, mark.title, mark.author) == ("deploy", "worker: revision 7", "plant:shop")
    assert mark.at.timestamp() == SEEN_AT
    assert "the previous revision was 6" in mark.text


def test_whoever_follows_next_marks_what_came_meanwhile_and_nothing_twice():
    first = RolloutMarks()
    first.follow(seen_with("6"))
    first.follow(seen_with("7"))
    RolloutMarks().follow(seen_with("7"))
    RolloutMarks().follow(seen_with("8"))
    assert titles() == ["worker: revision 7", "worker: revision 8"]


@pytest.mark.parametrize("letters", [20, 35, 50, 69, 75])
def test_a_long_revision_that_was_marked_is_not_marked_again_by_whoever_follows_next(letters):
    part = "k" * letters
    first = RolloutMarks()
    for revision in (f"{part}-6b7d", f"{part}-7c8e"):
        first.follow(seen_with(revision, part=part))
    for _ in range(2):
        RolloutMarks().follow(seen_with(f"{part}-7c8e", part=part))
    assert len(titles()) == 1


def test_a_revision_with_a_nul_is_marked_like_any_other():
    followed = RolloutMarks()
    for revision in ("6", "7\0"):
        followed.follow(seen_with(revision))
    assert titles() == ["worker: revision 7\ufffd"]
