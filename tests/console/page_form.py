"""A form of a page as a browser without scripts sends it: what every field was filled with."""

from html.parser import HTMLParser
from typing import Any

NEVER_SENT = ("submit", "button", "file", "checkbox", "radio")


def form_of(answer: Any, wanted: str) -> dict[str, str]:
    """The fields of a form, which is named by its action, its id or its label."""
    reader = _FormReader(wanted)
    reader.feed(answer.content.decode())
    assert reader.fields, f"no form {wanted} on the page"
    return reader.fields


class _FormReader(HTMLParser):
    def __init__(self, wanted: str) -> None:
        super().__init__()
        self.wanted, self.fields = wanted, dict[str, str]()
        self._inside, self._select, self._words = False, "", False

    def handle_starttag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        values = dict(attributes)
        if tag == "form":
            self._inside = self.wanted in (values.get("action"), values.get("id"), values.get("aria-label"))
        elif self._inside and "disabled" not in values:
            self._take(tag, values)

    def _take(self, tag: str, values: dict[str, str | None]) -> None:
        name = values.get("name") or ""
        if tag == "input" and name and values.get("type", "text") not in NEVER_SENT:
            self.fields[name] = values.get("value") or ""
        elif tag == "select":
            self._select = name
        elif tag == "option" and self._select and ("selected" in values or self._select not in self.fields):
            self.fields[self._select], self._words = values.get("value") or "", "value" not in values

    def handle_data(self, data: str) -> None:
        if self._words:
            self.fields[self._select], self._words = data.strip(), False

    def handle_endtag(self, tag: str) -> None:
        if tag == "form":
            self._inside = False
        elif tag == "select":
            self._select = ""
