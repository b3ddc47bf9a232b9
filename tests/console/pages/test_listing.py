"""Long lists: all of a small plant, the worst of a large one, and all of it for who asks."""

from copy import deepcopy

import orjson
import pytest
from django.template import Context
from django.test import RequestFactory

from console.templatetags.listing import MAX_ROWS, listed
from queues import keys
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
