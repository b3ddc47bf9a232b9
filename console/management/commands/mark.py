"""`manage.py mark TITLE`: a deploy or a note on the timeline."""

from typing import Any

from django.core.management.base import CommandParser
from django.utils import timezone

from console.accounts.access import Actor
from console.actions import marks
from console.input.form_values import parse_time
from console.management.document import JsonCommand
from console.models import Mark


class Command(JsonCommand):
    help = "Mark a deploy, or a note, on the timeline."

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("title", help="title, such as 'agent 0.9.3'")
        parser.add_argument("--kind", default=Mark.Kind.DEPLOY, help="deploy (the default) or note")
        parser.add_argument("--text", default="", help="additional text")
        parser.add_argument("--at", help="time, such as 2026-11-20T03:12:00Z; default: now")
        parser.add_argument("--until", help="the end of a range")
        parser.add_argument("--json", action="store_true")

    def answer(self, options: dict[str, Any]) -> dict[str, Any]:
        given = {name: options[name] for name in ("title", "kind", "text")}
        given |= {name: options[name] and parse_time(options[name], f"--{name}") for name in ("at", "until")}
        actor = Actor(name="manage.py", role="administrator")
        return marks.describe_mark(marks.add(actor, now=timezone.now(), **given))

    def format_output(self, document: dict[str, Any]) -> str:
        return f"Marked {document['kind']} {document['title']} at {document['at']}."
