"""Long lists: the worst of a large plant, and all of it for who asks; and what differs between two texts."""

import itertools
import time
from copy import deepcopy

import orjson
import pytest
from django.contrib.auth.models import User
from django.template import Context
from django.test import RequestFactory
from hypothesis import given
from hypothesis import strategies as st

from console.display.text_difference import MAX_LINES, compute_text_difference
from console.templatetags import listing as tags
from console.templatetags.listing import MAX_ROWS, MAX_SUGGESTED, choose, listed
from queues import keys
from queues.models import Node, Queue
from tests.console.conftest import sample_snapshot
from tests.console.page_form import source_of
from tests.workers.snapshots import judged, snapshot_of


def nodes(count):
    calm = sample_snapshot()["nodes"]["n1"]
    return {f"n{number:03}": {**deepcopy(calm), "utilisation": number / 1000} for number in range(count)}


def seen(rows):
    return evaluated(rows).nodes


def evaluated(rows):
    return judged(snapshot_of({"nodes": rows}))


def context(query="", **more):
    return Context({"request": RequestFactory().get(f"/nodes/{query}"), **more})


def test_few_rows_are_all_there_in_their_own_order():
    few = seen(nodes(MAX_ROWS))
    listing = listed(context(), few, "nodes")
    assert (listing.rows, listing.left_out) == (list(few.items()), 0)


def test_of_many_rows_the_worst_are_there_and_the_others_are_counted():
    many = nodes(200)
    many["n007"]["state"] = "OFFLINE"
    listing = listed(context(snapshot=evaluated(many)), seen(many), "nodes")
    names = [name for name, _ in listing.rows]
    assert names[:3] == ["n007", "n199", "n198"]
    assert (len(names), listing.total, listing.left_out) == (MAX_ROWS, 200, 200 - MAX_ROWS)


def test_who_asks_for_all_rows_gets_them():
    assert listed(context("?rows=all"), seen(nodes(200)), "nodes").left_out == 0


def test_a_field_for_a_known_value_is_a_list_and_keeps_a_value_that_is_gone():
    field = choose("owner", "gone", ["ada", "<b>"], "Unassigned")
    assert field == (
        '<select name="owner"><option value="">Unassigned</option><option value="gone" selected>gone</option>'
        '<option value="ada">ada</option><option value="&lt;b&gt;">&lt;b&gt;</option></select>'
    )
    assert '<option value="ada" selected>' in choose("owner", "ada", ["ada"], "Unassigned")


@pytest.mark.django_db
def test_a_large_installation_gets_a_text_field_with_a_limited_number_of_suggestions():
    User.objects.bulk_create([User(username=f"u{number:04}") for number in range(MAX_SUGGESTED + 50)])
    Queue.objects.bulk_create([Queue(name=f"q{number:04}") for number in range(MAX_SUGGESTED + 50)])
    assert tags.known_users().count("<option") == MAX_SUGGESTED
    assert tags.known_subjects().count('value="q') == MAX_SUGGESTED and 'value="critical"' in tags.known_subjects()
    field = choose("owner", "", tags.active_users(), "Unassigned")
    assert field.startswith('<input name="owner"') and field.count("<option") == MAX_SUGGESTED


@pytest.fixture
def large(control, browsers):
    """A viewer of a plant with two hundred nodes, each with a container of each queue."""
    snapshot = sample_snapshot()
    snapshot["nodes"] = nodes(200)
    for queue in snapshot["queues"].values():
        (row,) = queue["containers"].values()
        queue["containers"] = {name: {**row, "oldest_seconds": 1.0} for name in snapshot["nodes"]}
    snapshot["queues"]["alert"]["containers"]["n123"] |= {"oldest_seconds": None}
    control.set(keys.SNAPSHOT, orjson.dumps(snapshot))
    return browsers["viewer"]


@pytest.mark.parametrize(("path", "what"), [("/nodes/", "nodes"), ("/workers/", "containers")])
def test_a_page_of_a_large_plant_shows_the_worst_and_says_what_it_leaves_out(large, path, what):
    page = source_of(large.get(path))
    assert f"Showing the worst {MAX_ROWS} of 200 {what}." in page
    assert rows_of(page) == MAX_ROWS
    assert rows_of(source_of(large.get(f"{path}?rows=all"))) == 200


def rows_of(page):
    """Without the worker hosts, which stand above the containers."""
    return page.count("<tr data-href") - page.count('<tr data-href="/workers/')


def test_what_waits_for_nobody_knows_how_long_is_among_the_worst(large):
    assert 'data-name="alert n123"' in large.get("/workers/").content.decode()


def test_a_page_of_which_only_parts_are_wanted_comes_without_the_snapshot(large):
    whole = large.get("/nodes/").content.decode()
    parts = large.get("/nodes/", headers={"X-Weir-Parts": "1"}).content.decode()
    assert '<script id="snapshot" type="application/json">null</script>' in parts
    assert parts.count("<tr data-href") == whole.count("<tr data-href")


TEXTS = st.lists(st.sampled_from("abc"), max_size=30).map("\n".join)


def words(before, after):
    return [line.words for line in compute_text_difference(before, after).lines]


def test_a_changed_line_stands_between_its_neighbours():
    before = "\n".join("abcdefghij")
    assert words(before, before.replace("e", "E")) == ["…", "  c", "  d", "- e", "+ E", "  f", "  g"]


def test_line_ends_are_no_difference():
    assert words("a\r\nb\r\n", "a\nb") == []


@given(TEXTS, TEXTS)
def test_each_stretch_stands_in_both_texts(before, after):
    lines = compute_text_difference(before, after).lines
    for is_gap, stretch in itertools.groupby(lines, lambda line: line.sign == "@"):
        rows = [] if is_gap else list(stretch)
        for text, sign in ((before, "-"), (after, "+")):
            assert "\n".join(row.text for row in rows if row.sign in (" ", sign)) in text
    assert bool(lines) == (before.rstrip("\n") != after.rstrip("\n"))


def test_a_small_change_of_a_long_text_is_shown():
    before = "\n".join(map(str, range(50_000)))
    assert compute_text_difference(before, before.replace("\n25000\n", "\nx\n")).count == 2


def test_two_texts_that_share_nothing_in_order_cost_little():
    for size in (MAX_LINES - 1, 100_000):
        one = "\n".join(str(at % 101) for at in range(size)) + "\nx"
        other = "\n".join(str(7 * at % 101) for at in range(1, size + 1)) + "\ny"
        began = time.thread_time()
        found = compute_text_difference(one, other)
        assert time.thread_time() - began < 2.0, "52 s before it was bounded"
        assert found.too_long == (size > MAX_LINES) and (found.lines or found.too_long)


@pytest.mark.django_db
@pytest.mark.parametrize(
    ("path", "values"),
    [
        pytest.param("/audit/", ["operator"], id="users of the audit log"),
        pytest.param("/alerts/silences/", ["telemetry", "n2", "critical"], id="what a silence matches"),
        pytest.param("/service-levels/new/", ["telemetry"], id="the subject of an objective"),
    ],
)
def test_a_field_for_a_known_name_offers_the_names(path, values, browsers, stored_snapshot):
    Queue.objects.create(name="telemetry", kind="pipeline")
    Node.objects.create(name="n2", url="redis://127.0.0.1:1")
    page = browsers["administrator"].get(path).content.decode()
    assert all(f'<option value="{value}">' in page for value in values)
