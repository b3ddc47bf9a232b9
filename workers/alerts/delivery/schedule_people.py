"""The people that a calendar event names: those of its summary, and its attendees who did not decline."""

import re
from typing import Any
from urllib.parse import unquote

from workers.alerts.delivery.channels.plain_text import format_one_line

MAX_PEOPLE = 10
MAX_NAME_LENGTH = 120
_MAILTO = re.compile(r"mailto:", re.IGNORECASE)
_SCHEME = re.compile(r"[a-z][a-z0-9+.-]*:|/", re.IGNORECASE)  # of a URI, or of a path


def list_people(event: Any) -> tuple[str, ...]:
    """Return names and e-mail addresses, each once: attendees first, then the people of the summary."""
    attendees = event.get("ATTENDEE", [])
    people = [
        name
        for attendee in (attendees if isinstance(attendees, list) else [attendees])
        if _get_parameter(attendee, "PARTSTAT").upper() != "DECLINED"
        for name in _list_names(attendee)
    ]
    people += re.split(r"\s*[,;&]\s*", str(event.get("SUMMARY", "")).strip())
    named = dict.fromkeys(filter(None, (format_one_line(name)[:MAX_NAME_LENGTH] for name in people)))
    return tuple(named)[:MAX_PEOPLE]


def _list_names(attendee: Any) -> list[str]:
    """Return the attendee's addresses, with or without `mailto:`, else EMAIL, a plain name or CN."""
    value = str(attendee).strip().strip("\"'")
    if addresses := _extract_addresses(unquote(value)):
        return addresses
    if addresses := _extract_addresses(_get_parameter(attendee, "EMAIL")):
        return addresses
    named = _get_parameter(attendee, "CN")
    if named or _SCHEME.match(value):
        return [named]
    return [value]


def _extract_addresses(text: str) -> list[str]:
    """Return `a@x.example` and `b@x.example` of `mailto:a@x.example?subject=s, "B" <b@x.example>`."""
    words = (_MAILTO.sub("", word).strip("<>\"'").partition("?")[0] for word in re.split(r"[\s,;]+", text))
    return [word for word in words if "@" in word and not _SCHEME.match(word)]


def _get_parameter(attendee: Any, name: str) -> str:
    value = getattr(attendee, "params", {}).get(name, "")
    return ", ".join(map(str, value)) if isinstance(value, list) else str(value).strip().strip("\"'")
