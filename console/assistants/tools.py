"""The tools of an assistant: read a subject's state, explain, search, try values on the record, and propose.

Each tool makes a few calls of the API with the rights of the token, and reduces the answers. None of them changes the
plant: `propose` creates a proposal, whose hash people approve on a page.
"""

import time
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from typing import Any
from urllib.parse import quote

from console.api.request.calls import Calls, RequestRejected
from console.connections.control_server import LIVE_SECONDS

API = "/api/v1"
MAX_DECISIONS = 50
MAX_HOURS = 87_600
MAX_VALUES = 100  # more than any loop has
# A subject's kind → where the snapshot has its figures.
FIGURES = {"node": "nodes", "queue": "queues", "host": "hosts", "loop": "loops", "plant": "plants"}
DECISION = ("id", "at", "loop", "mode", "action", "reason", "terms", "limited_by", "verdict", "outcome", "error")
OPERATING = (
    "Weir is an operations console for an event-processing plant. Read with plant_state, subject, why, "
    "what_changed, search_ledger, and what_if. You can't change anything. To suggest an action, call "
    "propose: users have five minutes to approve the action on its page. proposal returns the result."
)


class Tools:
    """The tools over one way to the API."""

    def __init__(self, calls: Calls, clock: Callable[[], float] = time.time) -> None:
        self._calls, self._clock = calls, clock

    def plant_state(self) -> dict[str, Any]:
        """Return the plant now: its headline, each subject with a problem, open alerts, and manual changes."""
        snapshot, age_seconds = self._snapshot()
        return {
            "at": snapshot.get("at"),
            "age_seconds": age_seconds,
            "health": snapshot.get("health"),
            "totals": snapshot.get("totals"),
            "not_well": [state for state in _get_states(snapshot).values() if state.get("severity") != "well"],
            "alerts": snapshot.get("alerts", []),
            "overrides": snapshot.get("overrides", []),
            "hands": snapshot.get("hands", []),
            "subjects": sorted(_get_states(snapshot)),
        }

    def subject(self, kind: str, name: str) -> dict[str, Any]:
        """Return one subject.

        The result has its evaluated state, its figures, the loops that control it, and its open alerts. kind: node,
        queue, application, pipeline, host, loop, or plant.
        """
        snapshot, age_seconds = self._snapshot()
        key = f"{kind}/{name}"
        if key not in _get_states(snapshot):
            raise RequestRejected(f"name: {key} is unknown. The tool plant_state lists the subjects.")
        loops = snapshot.get("loops", {})
        return {
            "at": snapshot.get("at"),
            "age_seconds": age_seconds,
            "state": _get_states(snapshot)[key],
            "figures": self._get_figures(snapshot, kind, name),
            "loops": {loop: row for loop, row in loops.items() if name in row.get("target", {}).values()},
            "alerts": [alert for alert in snapshot.get("alerts", []) if name in _get_labels(alert).values()],
        }

    def why(self, loop: str, decisions: int = 5) -> dict[str, Any]:
        """Return the last decisions of a loop, newest first.

        Each has its action, its reason in a sentence, the terms behind it, what limited it, and whether it helped.
        """
        entries = self._list_decisions({"loop": loop}, decisions)
        if not entries:
            raise RequestRejected(
                f"loop: {loop} has no decisions, or is unknown. The tool plant_state lists the subjects."
            )
        return {"loop": loop, "decisions": entries}

    def search_ledger(
        self,
        text: str = "",
        law: str = "",
        queue: str = "",
        node: str = "",
        verdict: str = "",
        acted: bool | None = None,
        hours: float = 24.0,
        rows: int = 20,
    ) -> dict[str, Any]:
        """Search decisions of all loops in the last hours, newest first.

        Filters: words in their reason, law, queue, node, or verdict (effective, ineffective, harmful); acted: only
        those that did, or did not, act.
        """
        since = _format_instant(self._compute_start(hours))
        chosen = {"text": text, "law": law, "queue": queue, "node": node, "verdict": verdict, "from": since}
        if acted is not None:
            chosen["acted"] = "true" if acted else "false"
        return {"decisions": self._list_decisions(chosen, rows)}

    def what_changed(self, alert: int | None = None, hours: float = 3.0) -> dict[str, Any]:
        """Return what changed before an alert (its number, of plant_state), the most likely cause first.

        Without an alert, return what people, deploys, and loops changed in the last hours: marks, overrides in force,
        plans, and the decisions that acted.
        """
        if alert is not None:
            answer: dict[str, Any] = self._get(f"/alerts/{int(alert)}/changes")
            return answer
        span = {"from": _format_instant(self._compute_start(hours)), "to": _format_instant(self._clock())}
        return {
            "marks": self._get("/marks", span)["marks"],
            "overrides": self._get("/overrides")["overrides"],
            "plans": self._get("/plans")["plans"][:MAX_DECISIONS],
            "decisions": self._list_decisions({"acted": "true", "from": span["from"]}, MAX_DECISIONS),
        }

    def what_if(self, loop: str, values: dict[str, float], hours: float = 1.0) -> dict[str, Any]:
        """Return what a loop would have decided in the last hours with other values of its parameters.

        The recorded observations do not respond to the changed actions.
        """
        if len(values) > MAX_VALUES:
            raise RequestRejected(f"values: must have at most {MAX_VALUES} values, not {len(values):,}.")
        number = self._loop_id(loop)
        changed = [f"{name}={value!r}" for name, value in values.items()]
        answer: dict[str, Any] = self._get(f"/loops/{number}/what-if", {"set": changed, "hours": hours})
        return answer

    def propose(self, act: str, arguments: dict[str, Any], reason: str) -> dict[str, Any]:
        """Propose one action to people; nothing is done.

        act and its arguments: override {loop, name, value, minutes}; hold {loop, minutes}; silence {matchers: [{label,
        is, value}], minutes}; plan {goal: below-busy or band}. reason: why, in a sentence, with numbers. The proposal
        is void after five minutes.
        """
        body = {"act": act, "arguments": arguments, "reason": reason}
        made: dict[str, Any] = self._calls.ask("POST", f"{API}/proposals", body=body)
        return {**made, "page": f"/proposals/{made['id']}/"}

    def proposal(self, number: int) -> dict[str, Any]:
        """Return the state of a proposal: proposed, approved (with what was done), rejected, or void."""
        answer: dict[str, Any] = self._get(f"/proposals/{int(number)}")
        return answer

    def _snapshot(self) -> tuple[dict[str, Any], float]:
        """Return the newest snapshot and its age. Reject an old one: a model would take it for the current plant."""
        snapshot: dict[str, Any] = self._get("/live")["snapshot"]
        age_seconds = max(0.0, self._clock() - (snapshot.get("at") or 0.0))
        if age_seconds > LIVE_SECONDS:
            raise RequestRejected(
                f"plant: last observed {age_seconds:.0f} s ago. Its current state is unknown. "
                "Ask a user to check the observer. The ledger and what_changed still work."
            )
        return snapshot, round(age_seconds, 1)

    def _get_figures(self, snapshot: Mapping[str, Any], kind: str, name: str) -> object:
        if kind == "application":
            return snapshot.get("pipeline", {}).get("applications", {}).get(name)
        if kind == "pipeline":
            return snapshot.get("pipeline")
        return snapshot.get(FIGURES.get(kind, ""), {}).get(name)

    def _list_decisions(self, chosen: Mapping[str, Any], rows: int) -> list[dict[str, Any]]:
        query = {**chosen, "rows": max(1, min(int(rows), MAX_DECISIONS))}
        entries = self._get("/ledger", query)["entries"]
        return [{name: entry.get(name) for name in DECISION} for entry in entries]

    def _compute_start(self, hours: float) -> float:
        """Return the Unix time of so many hours ago."""
        if not 0 < hours <= MAX_HOURS:
            raise RequestRejected(f"hours: must be more than 0 and at most {MAX_HOURS:,} (ten years).")
        return self._clock() - 3_600 * hours

    def _loop_id(self, name: str) -> int:
        for loop in self._get("/loops")["loops"]:
            if loop["name"] == name:
                return int(loop["id"])
        raise RequestRejected(f"loop: {name} is unknown. The tool plant_state lists the subjects.")

    def _get(self, path: str, query: Mapping[str, Any] | None = None) -> Any:
        return self._calls.ask("GET", quote(f"{API}{path}"), query)


def _get_states(snapshot: Mapping[str, Any]) -> dict[str, dict[str, Any]]:
    states: dict[str, dict[str, Any]] = snapshot.get("states", {})
    return states


def _get_labels(alert: Mapping[str, Any]) -> dict[str, Any]:
    labels: dict[str, Any] = alert.get("labels", {})
    return labels


def _format_instant(seconds: float) -> str:
    return datetime.fromtimestamp(seconds, UTC).isoformat()
