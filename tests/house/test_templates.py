"""Templates read like code: each compiles, and no line of it runs out of sight."""

import re
from collections.abc import Iterator
from functools import cache
from html.parser import HTMLParser
from pathlib import Path

from django.template import TemplateSyntaxError, engines

TEMPLATES = Path(__file__).resolve().parents[2] / "templates"
ALL = sorted(TEMPLATES.rglob("*.html"))
MAX_LINE = 120
EXPIRY = "frame/expiry.html"
FORM = re.compile(r"<form\b[^>]*>")
INCLUDE = re.compile(r'{%\s*include "([^"]+)"[^%]*%}')
TAG = re.compile(r"{[%#{].*?[%#}]}", re.DOTALL)
VOID = {"area", "br", "col", "hr", "img", "input", "link", "meta", "source", "use"}


def asking_for_an_end() -> list[Path]:
    return [path for path in ALL if EXPIRY in path.read_text(encoding="utf-8")]


def named(path: Path) -> str:
    return path.relative_to(TEMPLATES).as_posix()


def test_the_lines_of_each_template_fit_beside_each_other():
    long = [
        f"{named(path)}:{number}"
        for path in ALL
        for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1)
        if len(line) > MAX_LINE
    ]
    assert long == [], "break these lines between elements or attributes, or give the logic a tag"


def test_each_template_compiles():
    errors = {}
    for path in ALL:
        try:
            engines["django"].get_template(named(path))
        except TemplateSyntaxError as error:
            errors[named(path)] = str(error)
    assert ALL and errors == {}


def test_a_form_that_asks_for_an_end_is_sent_with_the_zone_of_who_types_it():
    """A plain form would send what is typed as it stands, and the server would read it as UTC."""
    assert asking_for_an_end()
    for path in asking_for_an_end():
        before = path.read_text(encoding="utf-8").split(EXPIRY)[:-1]
        forms = [FORM.findall("".join(before[: place + 1]))[-1] for place in range(len(before))]
        assert [form for form in forms if "data-steer" not in form] == [], named(path)


class Parts(HTMLParser):
    """The charts, what unfolds, and the included templates of a template, each with whether a refreshed part
    encloses it.
    """

    def __init__(self) -> None:
        super().__init__()
        self.open: list[tuple[str, bool]] = []
        self.charts: list[bool] = []
        self.details: list[tuple[str, bool]] = []
        self.included: list[tuple[str, bool]] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = dict(attrs)
        inside = any(refreshed for _, refreshed in self.open)
        if tag == "weir-include":
            self.included.append((str(given["name"]), inside))
        # Small multiples are drawn again where their part is new.
        elif (
            tag == "figure"
            and "chart" in str(given.get("class")).split()
            and not {"data-multiple", "data-metric"} & set(given)
        ):
            self.charts.append(inside)
        elif tag == "details":
            self.details.append((given.get("id") or "", inside))
        if tag not in VOID | {"weir-include"}:
            self.open.append((tag, "data-refresh" in given))

    def handle_endtag(self, tag: str) -> None:
        # Branches of a template may open what only one of them closes: up to the nearest of its name.
        places = [place for place, (name, _) in enumerate(self.open) if name == tag]
        if places:
            del self.open[places[-1] :]


@cache
def read(name: str) -> Parts:
    parts = Parts()
    text = (TEMPLATES / name).read_text(encoding="utf-8")
    parts.feed(TAG.sub("", INCLUDE.sub(r'<weir-include name="\1">', text)))
    return parts


def charts(name: str, refreshed: bool = False) -> Iterator[bool]:
    """Of each chart of a template, with all that it includes, whether it stands in a refreshed part."""
    parts = read(name)
    yield from (refreshed or inside for inside in parts.charts)
    for included, inside in parts.included:
        yield from charts(included, refreshed or inside)


def test_no_chart_stands_where_the_page_is_written_anew():
    """A chart is drawn into the element that was there first: of another nothing would be seen."""
    assert [named(path) for path in ALL if True in charts(named(path))] == []


def test_what_somebody_unfolds_where_the_page_is_written_anew_has_an_id_by_which_it_stays_open():
    assert [named(path) for path in ALL if ("", True) in read(named(path)).details] == []


def test_the_charts_of_pages_are_found():
    assert list(charts("loops/loop.html")).count(False) >= 3
