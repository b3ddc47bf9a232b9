"""`manage.py texts`: lists every text that people read, with its place in the sources."""

import json
from itertools import groupby
from typing import Any

from django.conf import settings
from django.core.management.base import CommandParser

from console.help.texts import collect_texts
from console.management.one_line import OneLineCommand


class Command(OneLineCommand):
    help = "List the texts of pages, messages, and commands: file, line, and text with its placeholders in braces."
    requires_system_checks = []  # as for `JsonCommand`

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("--json", action="store_true", help="one JSON object per line")
        parser.add_argument("folder", nargs="?", default="", help="only files whose path starts with this")

    def handle(self, *arguments: object, **options: Any) -> None:
        for file, group in groupby(collect_texts(settings.BASE_DIR, options["folder"]), lambda text: text.file):
            if not options["json"]:
                self.stdout.write(f"# {file}")
            for text in group:
                document = {"file": file, "line": text.line, "text": text.text}
                self.stdout.write(json.dumps(document) if options["json"] else f"{text.line}\t{text.text}")
