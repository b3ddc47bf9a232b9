"""Forms of a page as a browser sends them, and what answers say."""

import re
from html.parser import HTMLParser

from console.models import AuditEntry

NEVER_SENT = ("submit", "button", "file", "checkbox", "radio")


def form_of(answer, wanted):
    """The fields of a form, which is named by its action, its id or its label."""
    reader = _FormReader(wanted)
    reader.feed(answer.content.decode())
    assert reader.fields, f"no form {wanted} on the page"
    return reader.fields


class _FormReader(HTMLParser):
    def __init__(self, wanted):
        super().__init__()
        self.wanted, self.fields = wanted, dict[str, str]()
        self._inside, self._select, self._words, self._text = False, "", False, ""

    def handle_starttag(self, tag, attributes):
        values = dict(attributes)
        if tag == "form":
            self._inside = self.wanted in (values.get("action"), values.get("id"), values.get("aria-label"))
        elif self._inside and "disabled" not in values:
            self._take(tag, values)

    def _take(self, tag, values):
        name = values.get("name") or ""
        if tag == "input" and name and values.get("type", "text") not in NEVER_SENT:
            self.fields[name] = values.get("value") or ""
        elif tag == "textarea" and name:
            self._text, self.fields[name] = name, ""
        elif tag == "select":
            self._select = name
        elif tag == "option" and self._select and ("selected" in values or self._select not in self.fields):
            self.fields[self._select], self._words = values.get("value") or "", "value" not in values

    def handle_data(self, data):
        if self._text:
            self.fields[self._text] += data.removeprefix("\n")
        if self._words:
            self.fields[self._select], self._words = data.strip(), False

    def handle_endtag(self, tag):
        if tag == "form":
            self._inside = False
        elif tag == "select":
            self._select = ""
        elif tag == "textarea":
            self._text = ""


def fetch(browser, address, posted=None):
    """Post a form as forms.js does."""
    return browser.post(address, posted or {}, headers={"accept": "application/json"})


def refused(answer):
    """Return the fields that a refusal names."""
    assert answer.status_code == 422, answer.content
    return list(answer.json()["errors"])


def audited():
    return [(each.actor, each.action, each.target) for each in AuditEntry.objects.order_by("id")]


def source_of(answer):
    """Return a page's source with its white space as a browser takes it: any run of it is one space."""
    return re.sub(r"\s+", " ", answer.content.decode())
