"""A CloudEvent (1.0) over HTTP as an outside change.

An event that is valid and says nothing of a change, such as a ping, is ignored.

Read of it: id, source, type, time, subject, and of data title, text (or description), url, parts. CDEvents'
`data.subject.id` names it where it has no title.
"""

import re
from collections.abc import Mapping
from datetime import datetime
from typing import Any
from urllib.parse import unquote

from common.errors import BadInput
from console.actions.marks import MAX_TEXT, MAX_TITLE, PART, OutsideChange, check_names
from console.input.form_values import parse_time
from console.input.storable import UNSTORABLE, is_plain

SPEC = "1.0"
PREFIX = "ce-"
# Words of types that say nothing of a change, and what CDEvents tell besides of work that changes no plant.
NO_CHANGES = {"ping", "pong", "heartbeat", "keepalive"}
OTHER_CDEVENTS = re.compile(
    r"dev\.cdevents\.(branch|build|change|incident|pipelinerun|repository|taskrun|test[a-z]*|ticket)\."
)
PING_HEADERS = ("x-github-event", "x-gitea-event", "x-gogs-event")
VERSION_AT_END = re.compile(r"\.v?\d+(\.\d+)*$")


class EventIgnored(Exception):  # noqa: N818
    """An event that is valid and says nothing of a change: `reason` says why."""

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason


def read_outside_change(headers: Mapping[str, str], document: object, now: datetime) -> OutsideChange:
    """Read the change that an event reports.

    Raises EventIgnored for an event of something else, and BadInput naming an attribute that is wrong.
    """
    lowered = {name.lower(): value for name, value in headers.items()}
    if _is_ping(lowered, document):
        raise EventIgnored("a ping reports no change.")
    attributes, data = _split_cloud_event(lowered, document)
    if (spec := _read_text_attribute(attributes, "specversion")) != SPEC:
        raise BadInput("specversion", f"must be {SPEC}, not {spec[:20]!r}.")
    named = {name: _read_text_attribute(attributes, name) for name in ("id", "source", "type")}
    for name, value in named.items():
        if not value:
            raise BadInput(name, "is missing. A CloudEvent has `id`, `source`, and `type`.")
    check_names(**named)
    if _is_of_no_change(named["type"]):
        raise EventIgnored(f"an event of type {named['type']} reports no change.")
    if data is not None and not isinstance(data, dict):
        raise EventIgnored("its data is not a JSON object and describes no change.")
    data = data or {}
    subject = _read_text_attribute(attributes, "subject")
    at = _read_text_attribute(attributes, "time")
    return OutsideChange(
        source=named["source"],
        event=named["id"],
        type=named["type"],
        title=_build_title(data, subject, named),
        text=(_read_text_attribute(data, "text") or _read_text_attribute(data, "description"))[:MAX_TEXT],
        at=parse_time(at, "time") if at else now,
        parts=_list_named_parts(data, subject),
        url=_read_text_attribute(data, "url"),
    )


def _is_ping(headers: Mapping[str, str], document: object) -> bool:
    """Return whether this is the ping of a Git host, which is not a CloudEvent."""
    is_named = any(headers.get(name) == "ping" for name in PING_HEADERS)
    return is_named or (isinstance(document, dict) and {"zen", "hook_id"} <= document.keys())


def _is_of_no_change(kind: str) -> bool:
    words = set(re.split(r"[^a-z]+", kind.lower()))
    return bool(words & NO_CHANGES) or OTHER_CDEVENTS.match(kind) is not None


def _split_cloud_event(headers: Mapping[str, str], document: object) -> tuple[Mapping[str, Any], Any]:
    """Return the attributes and the data. Raises BadInput for a body that has neither."""
    if f"{PREFIX}specversion" in headers:
        parts = {
            name.removeprefix(PREFIX): unquote(value) for name, value in headers.items() if name.startswith(PREFIX)
        }
        return parts, document
    if not isinstance(document, dict):
        raise BadInput("body", "must be a JSON object: a CloudEvent or its data.")
    return document, document.get("data")


def _list_named_parts(data: Mapping[str, Any], subject: str) -> list[str]:
    """Return the named subjects. A subject that is not Weir's means the whole plant."""
    parts = data.get("parts", [])
    if not isinstance(parts, list) or not all(isinstance(part, str) for part in parts):
        raise BadInput("parts", "must be a list of parts, such as queue/alert.")
    return list(dict.fromkeys([*parts, *([subject] if PART.fullmatch(subject) else [])]))


def _build_title(data: Mapping[str, Any], subject: str, named: Mapping[str, str]) -> str:
    title = _read_text_attribute(data, "title")
    if not title:
        inner = data.get("subject")
        of_data = inner.get("id", "") if isinstance(inner, dict) else ""
        what = VERSION_AT_END.sub("", named["type"]).split(".")[-2:]
        title = f"{' '.join(what)} {subject or of_data or named['source']}"
    return title[:MAX_TITLE].strip()


def _read_text_attribute(values: Mapping[str, Any], name: str) -> str:
    value = values.get(name)
    if value is None:
        return ""
    if not isinstance(value, str):
        raise BadInput(name, "must be a string.")
    if not is_plain(value):
        raise BadInput(name, UNSTORABLE)
    return value.strip()
