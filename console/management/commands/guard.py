"""`manage.py guard NAME`: the files that start the guard beside an attached plant. Nothing is applied."""

from typing import Any

from django.core.management.base import CommandParser

from common.errors import BadInput
from console.management.document import JsonCommand
from workers.plants.foreign import adapters
from workers.plants.models import RegisteredPlant


class Command(JsonCommand):
    help = "Show the files that start the guard beside an attached plant; change nothing."

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("name", help="name of the plant")
        parser.add_argument("--file", default="", help="print only this file, such as weir-guard.yaml")
        parser.add_argument("--json", action="store_true")

    def answer(self, options: dict[str, Any]) -> dict[str, Any]:
        row = RegisteredPlant.objects.filter(name=options["name"]).first()
        if row is None:
            raise BadInput("NAME", f"{options['name'][:60]} is not registered.")
        manifests = adapters.build_guard_manifests(row)
        files = {manifest.file: {"about": manifest.about, "text": manifest.text} for manifest in manifests}
        wanted = options["file"]
        if wanted and wanted not in files:
            raise BadInput("--file", f"must be one of {', '.join(files) or 'none'}, not {wanted[:60]!r}.")
        return {"plant": row.name, "needs_guard": bool(files), "files": {wanted: files[wanted]} if wanted else files}

    def format_output(self, document: dict[str, Any]) -> str:
        if not document["needs_guard"]:
            return f"{document['plant']} needs no guard. Its page shows what stays if Weir vanishes."
        files = document["files"]
        if len(files) == 1:
            return str(next(iter(files.values()))["text"]).rstrip("\n")
        return "\n\n".join(f"# {name}: {file['about']}\n{file['text'].rstrip()}" for name, file in files.items())
