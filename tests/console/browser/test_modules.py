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
    text = '<a href="https://elsewhere.example">Log in</a> &lt; <b>%{x}</b><br>a'
    script = """async (text) => {
      const { heading, labels, tokens } = await import("/static/js/charts/plot.js");
      const layout = { annotations: [heading(tokens(), text, 1, false)] };
      const end = { series: { label: text, constant: 1, kind: "reference" }, last: 1 };
      labels([end], "y", tokens(), layout, 1, 100);
      const plot = document.body.appendChild(document.createElement("div"));
      await window.Plotly.newPlot(plot, [], layout);
      const drawn = [...plot.querySelectorAll(".annotation-text")].map((each) => each.textContent.trim());
      return [plot.querySelectorAll(".annotation-text a").length, drawn];
    }"""
    page = open_page("/queues/alert/")
    page.wait_for_function("window.Plotly")
    links, shown = page.evaluate(script, text)
    assert links == 0 and [each.replace("\u200b", "") for each in shown] == [text, text]


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
