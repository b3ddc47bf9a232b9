"""`manage.py doctor`: the problems of this installation, and their remedies; exits with 1 if there are any.

`--bundle FILE` also writes a support bundle without secrets to a ZIP.
"""

import json
import sys
from pathlib import Path
from typing import Any

from django.core.management.base import CommandError, CommandParser

from console.management.one_line import OneLineCommand
from console.upkeep import bundle
from console.upkeep.doctor import report


class Command(OneLineCommand):
    help = "Check this installation, and list each problem with a remedy. Nothing is changed."
    requires_system_checks = []

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument(
            "--bundle", type=Path, metavar="FILE", help=("write a support bundle (ZIP) without secrets and events")
        )
        parser.add_argument("--json", action="store_true", help="print JSON on a terminal, too")

    def handle(self, *args: object, **options: Any) -> None:
        if options["bundle"]:
            self.stdout.write(f"Created {write_bundle(options['bundle'])}; read it before you send it.")
            return
        symptoms = report()
        plain = options["json"] or not sys.stdout.isatty()
        self.stdout.write(json.dumps(symptoms) if plain else format_report(symptoms))
        if not symptoms["ok"]:
            sys.exit(1)


def write_bundle(path: Path) -> Path:
    try:
        bundle.make(path)
    except FileExistsError:
        raise CommandError(f"--bundle: {path} already exists. Choose another name.", returncode=2) from None
    except OSError as error:
        raise CommandError(f"--bundle: {path} can't be written ({error.strerror}).", returncode=2) from None
    return path


def format_report(report: dict[str, Any]) -> str:
    """Return a line for each symptom, for a terminal."""
    lines = [f"{row['severity']:7}  {row['text']} -> {row['remedy']}" for row in report["symptoms"]]
    return "\n".join(lines or [f"No problems found ({len(report['checks'])} checks)."])
