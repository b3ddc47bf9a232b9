"""The modules of the pages do what their twins on the server do."""

import pytest

from tests.console.browser.screen import BROWSER
from workers.coordination.merge_patch import compute_patch

pytestmark = BROWSER

DOCUMENTS = (
    ({"a": 1, "b": {"c": 2, "d": 3}}, {"a": 1, "b": {"c": 5}}),
    ({"a": [1, 2]}, {"a": [1], "new": {"deep": {"er": True}}}),
    ({"n": {"x": {"y": 1}}, "gone": 1}, {"n": {"x": 7}}),
    ({"jobs@host.local": {"busy": 0}}, {"jobs@host.local": {"busy": 2}}),
)


def test_a_patch_in_the_browser_gives_what_the_observer_meant(open_page, observer):
    page = open_page("/")
    script = """async ([document, patch]) => {
      const { merged } = await import("/static/js/values/store.js");
      const kept = JSON.stringify(document);
      const result = merged(document, patch);
      return [result, JSON.stringify(document) === kept];
    }"""
    for before, after in DOCUMENTS:
        assert page.evaluate(script, [before, compute_patch(before, after)]) == [after, True]


def test_a_name_with_dots_is_found_in_the_snapshot(open_page, observer):
    page = open_page("/")
    script = """async (document) => {
      const { resolve } = await import("/static/js/values/store.js");
      return [resolve(document, "hosts.jobs@vm.local.busy"), resolve(document, "hosts.other.busy")];
    }"""
    assert page.evaluate(script, {"hosts": {"jobs@vm.local": {"busy": 2}}}) == [2, None]


@pytest.mark.thorough
def test_what_a_map_does_not_draw_again_is_gone_also_where_one_snapshot_is_drawn_twice(open_page, observer):
    script = """async () => {
      const { bandMap } = await import("/static/js/charts/band_map.js");
      const host = document.body.appendChild(document.createElement("div"));
      const columns = [{ title: "", x: 0, width: 100, height: 60 }];
      const draw = bandMap(host, { columns, width: 100, leastHeight: 100, name: "a map" });
      return [true, false].map((stale) => {
        draw({ boxes: [[{ id: "a", name: "a", rate: 1, lines: [], stale }]], links: [] });
        return host.querySelectorAll(".hatch").length;
      });
    }"""
    assert open_page("/").evaluate(script) == [1, 0]


def test_a_chart_shows_names_and_sentences_as_they_are_written(open_page, observer):
    text = '<a href="//x"><b>&lt;%{x}'
    script = """async (text) => {
      const { heading, labels, tokens } = await import("/static/js/charts/plot.js");
      const layout = { annotations: [heading(tokens(), text, 1, false)] };
      const end = { label: text, value: "", at: 1, colour: "", strong: false };
      labels([end], "y", layout, { low: 0, high: 1, step: 1 }, 100);
      const plot = document.body.appendChild(document.createElement("div"));
      await window.Plotly.newPlot(plot, [], layout);
      const drawn = [...plot.querySelectorAll(".annotation-text")].map((each) => each.textContent.trim());
      return [plot.querySelectorAll(".annotation-text a").length, drawn];
    }"""
    page = open_page("/queues/alert/")
    page.wait_for_function("window.Plotly")
    links, shown = page.evaluate(script, text)
    assert links == 0 and [each.strip().replace("\u200b", "") for each in shown] == [text, text]


def row(number, typed=""):
    return (
        f'<form action="/same/"><input type="hidden" name="id" value="{number}">'
        f'<input name="reason" data-typed="{typed}"></form>'
    )


@pytest.mark.parametrize(
    ("before", "after", "expected"),
    [
        pytest.param([(1, ""), (2, "two")], [1, 2], ["", "two"], id="in its row"),
        pytest.param([(1, ""), (2, "two")], [3, 2], ["", "two"], id="where another row came"),
        pytest.param([(1, "one"), (2, "")], [2], [""], id="with its row it goes"),
        pytest.param([(1, "one")], [1, 2], ["one", ""], id="where a row more came"),
        pytest.param([(1, "one")], [2], ["one"], id="in the only form there is, made anew"),
    ],
)
def test_what_is_typed_in_a_row_stays_in_that_row(open_page, observer, before, after, expected):
    page = open_page("/")
    script = """async ([before, after]) => {
      const { keepTyped } = await import("/static/js/values/refresh.js");
      const [old, part] = [before, after].map((text) => {
        const made = document.createElement("div");
        made.innerHTML = text;
        return made;
      });
      for (const field of old.querySelectorAll("[data-typed]")) field.value = field.dataset.typed;
      keepTyped(old, part, null);
      return [...part.querySelectorAll("[name=reason]")].map((field) => field.value);
    }"""
    old, new = "".join(row(*each) for each in before), "".join(map(row, after))
    assert page.evaluate(script, [old, new]) == expected


@pytest.mark.parametrize(
    ("levels", "expected"),
    [
        pytest.param([50, 49, 48], [50, 35, 20], id="apart in their order"),
        pytest.param([1, 0.5, 0], [30, 15, 0], id="within the plot at its lower end"),
        pytest.param([100, 99], [100, 85], id="within the plot at its upper end"),
    ],
)
def test_labels_at_the_end_of_lines_never_overlap(open_page, observer, levels, expected):
    """A label needs 15 pixels; here, a pixel is one."""
    script = """async (levels) => {
      const { labels } = await import("/static/js/charts/plot.js");
      const layout = { annotations: [] };
      const ends = levels.map((at) => ({ label: "a", value: "1", at, colour: "", strong: true }));
      labels(ends, "y", layout, { low: 0, high: 100, step: 25 }, 100);
      return layout.annotations.map(({ y }) => Math.round(y));
    }"""
    assert open_page("/queues/alert/").evaluate(script, levels) == expected


def test_an_axis_has_round_steps_and_names_a_limit_that_is_far_above_its_values(open_page, observer):
    script = """async () => {
      const { roundRange } = await import("/static/js/charts/plot.js");
      const { rangeOf } = await import("/static/js/charts/lanes.js");
      const rate = rangeOf({ fits: true }, [29, 33], []), wait = rangeOf({ fits: false }, [2, 6], [{ value: 30 }]);
      const near = rangeOf({ fits: false }, [2, 7], [{ value: 15 }]);
      return [roundRange(0, 114), roundRange(0, 2, 1), rate.low > 20, wait.low, wait.above.length, near.high >= 15];
    }"""
    assert open_page("/queues/alert/").evaluate(script) == [
        {"low": 0, "high": 120, "step": 30}, {"low": 0, "high": 2, "step": 1}, True, 0, 1, True,
    ]  # fmt: skip


def test_the_time_beyond_a_limit_is_outlined_from_the_crossing_on(open_page, observer):
    script = """async () => {
      const { breaches } = await import("/static/js/charts/lanes.js");
      const above = breaches([1, 2, 3, 4, 5], [1, 5, 6, 1, null], [4, 4, 4, 4, 4], "above");
      return [above.x, above.y, breaches([1, 2], [5, 5], [4, 4], "below").x];
    }"""
    assert open_page("/queues/alert/").evaluate(script) == [[1, 2, 3, 3, 2, 1, None], [4, 5, 6, 4, 4, 4, None], []]


def test_a_limit_that_no_series_measures_is_drawn_and_entities_keep_their_colors(open_page, observer):
    script = """async () => {
      const { coloursOf, isLimit, readLane } = await import("/static/js/charts/lanes.js");
      const { tokens } = await import("/static/js/charts/plot.js");
      const lane = (names) => {
        const element = Object.assign(document.createElement("data"), { innerHTML: names.map((name) =>
          `<data data-series="queues.${name}.wait_seconds" data-label="${name}" data-kind="entity"></data>`).join("")
          + '<data data-value="30" data-label="limit" data-kind="limit"></data>' });
        element.dataset.lane = "Oldest event, s";
        return readLane(element).series;
      };
      const first = lane(["x-1", "x-2"]), second = lane(["x-0", "x-1", "x-2"]), colours = tokens();
      const before = coloursOf(first, colours), after = coloursOf(second, colours);
      return [first.filter(isLimit).map(({ constant }) => constant), new Set(second.map((row) => after.get(row))).size,
        before.get(first[0]) === after.get(second[1]), before.get(first[1]) === after.get(second[2])];
    }"""
    assert open_page("/").evaluate(script) == [[30], 4, True, True]
