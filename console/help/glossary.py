"""The glossary: the terms of `docs/glossary.toml`, as a page and as tooltips."""

import tomllib
from collections.abc import Mapping
from functools import cache
from pathlib import Path

from django.conf import settings


@cache
def load_groups() -> tuple[tuple[str, tuple[Mapping[str, object], ...]], ...]:
    """Return (title, terms) of each group of the glossary, in its order."""
    path = Path(settings.BASE_DIR) / "docs" / "glossary.toml"
    document = tomllib.loads(path.read_text(encoding="utf-8"))
    return tuple((group["title"], tuple(group["term"])) for group in document["group"])


@cache
def load_definitions() -> Mapping[str, str]:
    """Return the definition of each term by its name."""
    return {str(term["name"]): str(term["definition"]) for _, terms in load_groups() for term in terms}


def build_page() -> str:
    """Return the glossary as a Markdown page."""
    sections = (
        f"## {title}\n\n| term | definition | source | retired names |\n|---|---|---|---|\n"
        + "\n".join(_build_row(term) for term in terms)
        for title, terms in load_groups()
    )
    return (
        "# Glossary\n\nWeir uses one term for one thing on pages, in alerts, in the ledger, and in code. Retired names"
        " remain only where they are stored or published.\n\n" + "\n\n".join(sections) + "\n"
    )


def _build_row(term: Mapping[str, object]) -> str:
    retired = term.get("retired") or ()
    assert isinstance(retired, list | tuple)
    names = ", ".join(f"`{name}`" for name in retired)
    return f"| {term['name']} | {term['definition']} | {term['source']} | {names} |"
