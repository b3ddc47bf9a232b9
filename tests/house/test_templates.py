"""Templates read like code: each compiles, and no line of it runs out of sight."""

from pathlib import Path

import pytest
from django.template import engines

TEMPLATES = Path(__file__).resolve().parents[2] / "templates"
LONGEST_LINE = 120


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
