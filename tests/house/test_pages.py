"""A page declares what its template may read, and nothing is rendered but by its declared context."""

import dataclasses
import importlib
import pkgutil
import re
from collections import Counter
from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path
from types import UnionType
from typing import Any, Union, get_args, get_origin, get_type_hints

import pytest

from console.pages.frame.page import ConsolePage, FormPage, FrameContext
from console.web.template_context import TemplateContext
from tests.house.template_variables import TemplateReader, parameters_of_parts

ROOT = Path(__file__).resolve().parents[2]
TEMPLATES = ROOT / "templates"
# What the context processors of console/settings.py add, and what Django adds for {% csrf_token %}.
PROCESSORS = {"request", "user", "perms", "messages", "csrf_token", "frame"}
# Django, and axes, render these with a context of their own; the templates read none of it.
NOT_OURS = {"403.html": {"exception"}, "404.html": set(), "people/locked_out.html": set()}
FRAMES = {"alone.html", "document.html", "plain.html"}  # what others extend, beside base.html
JSON = {"chart", "export", "progress", "trace", "watched"}  # shown or handed on as it is
BASES = {TemplateContext, ConsolePage, FormPage}
# Where a template is named and filled in: everybody else has a context for it.
HELPERS = {"console/web/template_context.py", "console/pages/frame/page.py"}
RENDERS = re.compile(r"^from django\.(shortcuts import .*\brender\b|template\.(loader|response) import)|template_name")


@cache
def contexts() -> list[type[TemplateContext]]:
    """Importing all of the console finds them."""
    for room in ("pages", "web", "input"):
        for module in pkgutil.walk_packages([str(ROOT / "console" / room)], f"console.{room}."):
            importlib.import_module(module.name)
    ours = {each for each in below(TemplateContext) - BASES if each.__module__.startswith("console.")}
    return sorted(ours, key=lambda context: context.__name__)


def below(base: type) -> set[type]:
    return {base}.union(*(below(each) for each in base.__subclasses__()))


def parts_of(kind: Any) -> Iterator[Any]:
    """A type, and those that it is made of: list[X | None] → list[X | None], X | None, X, None."""
    yield kind
    for part in get_args(kind):
        yield from parts_of(part)


def has_plain_row(kind: Any, inside: bool = False) -> bool:
    """Whether in it are dicts of anything at all. `Mapping[str, Any]` alone is values by name: no row."""
    origin, parts = get_origin(kind), get_args(kind)
    if origin in (dict, Mapping) and parts[1] in (Any, object):
        return origin is dict or inside
    return any(has_plain_row(part, inside or origin not in (Union, UnionType)) for part in parts)


def rows_in(*kinds: type) -> set[type]:
    """The dataclasses of ours that these are made of, themselves included."""
    found, left = set(), list(kinds)
    while left:
        kind = left.pop()
        if kind not in found:
            found.add(kind)
            parts = (part for field in get_type_hints(kind).values() for part in parts_of(field))
            left += [part for part in parts if isinstance(part, type) and is_ours(part)]
    return found


def is_ours(kind: type) -> bool:
    return dataclasses.is_dataclass(kind) and kind.__module__.startswith("console.")


NAMES = sorted(path.relative_to(TEMPLATES).as_posix() for path in TEMPLATES.rglob("*.html"))
CHOSEN = {"law_words": [name for name in NAMES if name.startswith("loops/laws/")]}


def is_part(name: str) -> bool:
    """It is included, and has the context of whatever includes it."""
    return "/parts/" in name or name.startswith(("frame/", "loops/laws/"))


@cache
def given_to_parts() -> dict[str, set[str]]:
    return parameters_of_parts(NAMES)


@cache
def names_in(template: str) -> dict[str, set[str]]:
    """The names that a template and its parts read, with the places that read them."""
    return TemplateReader(CHOSEN).template(template).found


def read_by(template: str) -> set[str]:
    """The names that it must be given; a part may do without those that only some give it."""
    given = given_to_parts()
    return {
        name for name, places in names_in(template).items() if not all(name in given.get(place, ()) for place in places)
    }


def fields_of(context: type[TemplateContext]) -> set[str]:
    return {field.name for field in dataclasses.fields(context)}


def given_to(context: type[TemplateContext]) -> set[str]:
    frame = fields_of(FrameContext) if issubclass(context, ConsolePage) else set()
    return fields_of(context) | frame | PROCESSORS


def test_a_template_reads_nothing_that_its_context_does_not_declare():
    undeclared = {context.__name__: read_by(context.TEMPLATE) - given_to(context) for context in contexts()}
    assert contexts() and {name: found for name, found in undeclared.items() if found} == {}


def test_a_context_declares_nothing_that_its_template_does_not_read():
    for context in contexts():
        if context is FrameContext:
            continue
        of_every_form = fields_of(FormPage) if issubclass(context, FormPage) else set()
        assert fields_of(context) - of_every_form - names_in(context.TEMPLATE).keys() == set(), context


def test_a_context_is_frozen_and_hides_nothing_of_the_frame():
    for context in contexts():
        assert dataclasses.is_dataclass(context) and context.__dataclass_params__.frozen, context
        if issubclass(context, ConsolePage):
            assert fields_of(context) & (fields_of(FrameContext) | PROCESSORS) == set(), context


@pytest.mark.parametrize("template", NOT_OURS)
def test_what_others_render_reads_only_what_they_give(template):
    assert read_by(template) - PROCESSORS <= NOT_OURS[template]


def test_no_row_is_a_plain_dict():
    """But for JSON that a page shows or hands on as it is."""
    plain = [
        f"{kind.__qualname__}.{name}"
        for kind in rows_in(*contexts())
        for name, field in get_type_hints(kind).items()
        if name not in JSON and has_plain_row(field)
    ]
    assert plain == []


def test_a_plain_row_is_found_at_any_depth():
    assert has_plain_row(list[Mapping[str, Any]] | None) and has_plain_row(dict[str, object])
    assert has_plain_row(Mapping[str, list[dict[str, Any]]])
    assert not has_plain_row(Mapping[str, Any] | None) and not has_plain_row(list[dict[str, int]])


def test_each_template_has_one_context():
    used = Counter(context.TEMPLATE for context in contexts())
    assert {name: count for name, count in used.items() if count > 1} == {}
    pages = {name for name in NAMES if not is_part(name)}
    assert pages - used.keys() - NOT_OURS.keys() - FRAMES == set()
    assert used.keys() - set(NAMES) == set()


def test_nothing_is_rendered_but_by_its_context():
    modules = {path.relative_to(ROOT).as_posix(): path for path in (ROOT / "console").rglob("*.py")}
    found = {
        name: lines
        for name, path in modules.items()
        if name not in HELPERS
        and (lines := [line for line in path.read_text(encoding="utf-8").splitlines() if RENDERS.search(line)])
    }
    assert found == {}, "declare a TemplateContext, and render it with render_page or render_context"


def test_the_reader_finds_a_name_that_nobody_gives():
    found = TemplateReader().source(
        "{% load static %}{% for row in rows %}{{ row.x }}{{ forloop.counter }}{{ rwo.x }}{% endfor %}"
        "{% with total=sum|default:least %}{{ total }}{% endwith %}{{ total }}"
        "{% if a and not b.c == 'd' %}{% url 'help' as address %}{{ address }}{% endif %}{{ True }}"
    )
    assert set(found) == {"rows", "rwo", "sum", "least", "total", "a", "b"}
