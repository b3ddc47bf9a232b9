"""`manage.py detach NAME`: end Weir's control of a plant, restore everything that Weir has set, and prove it."""

from typing import Any

from django.core.management.base import CommandParser

from console.accounts.access import Actor
from console.actions import plant_detach
from console.connections.control_server import control
from console.management.document import JsonCommand
from workers.plants.plant import PlantFailure


class Command(JsonCommand):
    help = "Restore everything that Weir has set at a plant, verify it, and remove the plant (else exit code 1)."

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("name", help="name of the plant")
        parser.add_argument("--keep", action="store_true", help="keep the registration: Weir still observes the plant")
        parser.add_argument("--reason", default="detached", help="reason for the audit log")
        parser.add_argument("--json", action="store_true")

    def answer(self, options: dict[str, Any]) -> dict[str, Any]:
        actor = Actor(name="manage.py", role="administrator")
        try:
            done = plant_detach.detach(actor, options["name"], options["reason"], control(), keep=options["keep"])
        except PlantFailure as error:  # its loops no longer act, and what is set there is unknown
            items = [{"item": options["name"], "is_verified": False, "said": f"not verified: {error}"}]
            return {"plant": options["name"], "items": items, "removed": False, "advising": []}
        items = [{"item": item.item, "is_verified": item.is_verified, "said": item.sentence} for item in done.items]
        return {"plant": done.plant, "items": items, "removed": done.is_removed, "advising": done.advising}

    def format_output(self, document: dict[str, Any]) -> str:
        lines = [item["said"] for item in document["items"]] or ["Weir has set nothing at this plant."]
        if document["advising"]:
            lines.append(f"Loops that only advise now: {', '.join(document['advising'])}.")
        if document["removed"]:
            lines.append(f"{document['plant']} was removed. Its ledger and its audit entries are kept.")
        elif any(not item["is_verified"] for item in document["items"]):
            lines.append(f"{document['plant']} is still registered. Run the command again to repeat the rest.")
        else:
            lines.append(f"{document['plant']} is still registered and observed.")
        return "\n".join(lines)

    def list_failures(self, document: dict[str, Any]) -> list[str]:
        return [item["said"] for item in document["items"] if not item["is_verified"]]
