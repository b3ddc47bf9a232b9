"""A CloudEvent (1.0) over HTTP as an outside change.

It is structured (`application/cloudevents+json`, or JSON) or binary (attributes in `ce-` headers, the body is
its data, a JSON object). It uses id, source, type, time, subject, and from data title, text (or description),
url, parts. CDEvents' `data.subject.id` is the title if there is none.
"""

import re
from collections.abc import Mapping
from datetime import datetime
from typing import Any
from urllib.parse import unquote

from console.actions.timeline.marks import LONGEST_TEXT, LONGEST_TITLE, PART, OutsideChange, check_names
from console.input.form_values import time_of
from console.input.plain_text import UNSTORABLE, is_plain
from queues.errors import BadInput

SPEC = "1.0"
PREFIX = "ce-"
VERSION_AT_END = re.compile(r"\.v?\d+(\.\d+)*$")


def outside_change(headers: Mapping[str, str], document: Any, now: datetime) -> OutsideChange:
    """Return the outside change. Raises `BadInput` that names a missing or wrong attribute."""
    if not isinstance(document, dict):
        raise BadInput("body", "takes a JSON object: a CloudEvent, or its data.")
    attributes, data = _parts_of(headers, document)
    if (spec := _text(attributes, "specversion")) != SPEC:
        raise BadInput("specversion", f"takes {SPEC}, not {spec[:20]!r}.")
    named = {name: _text(attributes, name) for name in ("id", "source", "type")}
    for name, value in named.items():
        if not value:
            raise BadInput(name, "is missing; a CloudEvent has id, source and type.")
    check_names(**named)
    subject = _text(attributes, "subject")
    at = _text(attributes, "time")
    return OutsideChange(
        source=named["source"],
        event=named["id"],
        type=named["type"],
        title=_title(data, subject, named),
        text=(_text(data, "text") or _text(data, "description"))[:LONGEST_TEXT],
        at=time_of(at, "time") if at else now,
        parts=_list_named_parts(data, subject),
        url=_text(data, "url"),
    )


def _parts_of(
    headers: Mapping[str, str], document: Mapping[str, Any]
) -> tuple[Mapping[str, Any], Mapping[str, Any]]:
    """Return attributes and data."""
    lowered = {name.lower(): value for name, value in headers.items()}
    if f"{PREFIX}specversion" in lowered:
        parts = {
            name.removeprefix(PREFIX): unquote(value)
            for name, value in lowered.items()
            if name.startswith(PREFIX)
        }
        return parts, document
    data = document.get("data")
    if data is not None and not isinstance(data, dict):
        raise BadInput("data", "takes a JSON object.")
    return document, data or {}


def _list_named_parts(data: Mapping[str, Any], subject: str) -> list[str]:
    """Return the named subjects. A subject that is not Weir's means the whole plant."""
    parts = data.get("parts", [])
    if not isinstance(parts, list) or not all(isinstance(part, str) for part in parts):
        raise BadInput("parts", "takes a list of parts, such as queue/alert.")
    return list(dict.fromkeys([*parts, *([subject] if PART.fullmatch(subject) else [])]))


def _title(data: Mapping[str, Any], subject: str, named: Mapping[str, str]) -> str:
    title = _text(data, "title")
    if not title:
        inner = data.get("subject")
        of_data = inner.get("id", "") if isinstance(inner, dict) else ""
        what = VERSION_AT_END.sub("", named["type"]).split(".")[-2:]
        title = f"{' '.join(what)} {subject or of_data or named['source']}"
    return title[:LONGEST_TITLE].strip()


def _text(values: Mapping[str, Any], name: str) -> str:
    value = values.get(name)
    if value is None:
        return ""
    if not isinstance(value, str):
        raise BadInput(name, "takes a text.")
    if not is_plain(value):
        raise BadInput(name, UNSTORABLE)
    return value.strip()
