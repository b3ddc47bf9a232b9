"""States and verdicts in a word each."""

from collections.abc import Mapping
from typing import Any

from queues.nodes.node_state import BUSY, IDLE, NORMAL, OFFLINE, TOOBUSY

STATE_WORDS: Mapping[str, str] = {IDLE: "Idle", NORMAL: "Normal", BUSY: "Busy", TOOBUSY: "Too busy", OFFLINE: "Offline"}
VERDICT_WORDS: Mapping[str, str] = {
    "checking": "Checking",
    "effective": "Effective",
    "ineffective": "No effect",
    "harmful": "Harmful",
    "no action": "No action",
}


def get_health_word(health: Any) -> str:
    """Return the word before the plant's sentence. An observer of an earlier version has no word."""
    return getattr(health, "word", "") or get_state_word(getattr(health, "state", None))


def get_state_word(state: Any) -> str:
    """Return the word for a node's or a plant's state."""
    return STATE_WORDS.get(str(state), "Unknown")
