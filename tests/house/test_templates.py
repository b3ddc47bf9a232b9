"""Templates read like code: each compiles, and no line of it runs out of sight."""

import re
from pathlib import Path

import pytest
from django.template import engines

TEMPLATES = Path(__file__).resolve().parents[2] / "templates"
LONGEST_LINE = 120
EXPIRY = "frame/expiry.html"
FORM = re.compile(r"<form\b[^>]*>")


def asking_for_an_end() -> list[Path]:
    return [path for path in sorted(TEMPLATES.rglob("*.html")) if EXPIRY in path.read_text(encoding="utf-8")]


def named(path: Path) -> str:
    return path.relative_to(TEMPLATES).as_posix()


@pytest.mark.parametrize("path", sorted(TEMPLATES.rglob("*.html")), ids=named)
def test_a_template_s_lines_fit_beside_each_other(path):
    lines = enumerate(path.read_text(encoding="utf-8").splitlines(), 1)
    long = [number for number, line in lines if len(line) > LONGEST_LINE]
    assert long == [], f"break these lines between elements or attributes, or give the logic a tag: {long}"


@pytest.mark.parametrize("path", sorted(TEMPLATES.rglob("*.html")), ids=named)
def test_a_template_compiles(path):
    engines["django"].get_template(named(path))


@pytest.mark.parametrize("path", asking_for_an_end(), ids=named)
def test_a_form_that_asks_for_an_end_is_sent_with_the_zone_of_who_types_it(path):
    """A plain form would send what is typed as it stands, and the server would read it as UTC."""
    before = path.read_text(encoding="utf-8").split(EXPIRY)[:-1]
    forms = [FORM.findall("".join(before[: place + 1]))[-1] for place in range(len(before))]
    assert [form for form in forms if "data-steer" not in form] == []
