"""Overrides in words: their expiry, and what they replace."""

import re
from collections.abc import Iterable, Mapping, Sequence

from common import checks
from workers.alerts.conditions.condition import describe_loop
from workers.documents.loops import ManualChange
from workers.models import Loop, Override
from workers.snapshot.manual_changes import build_override_change
from workers.steering.overrides import build_status
from workers.steering.scope import Scope, format_time

MAX_SENTENCES = 3
HOST_OF_POOL = re.compile(r" of (\w+)@(\S+)$")
NO_NOTICE = 1.0  # s; the sentences don't mention when the end is announced


def describe_end(override: Override) -> str:
    """Return when an override reverts, as the end of a sentence."""
    end = override.expires_at
    return f"until {format_time(end, override.created_at)}" if end else "without expiry"


def describe_replaced_overrides(overrides: Iterable[Override]) -> str:
    """Return what newer overrides replace, in words."""
    rows = [row for override in overrides for row in override.replaces]
    words = [
        f"{row['owner']} set {format_short_value(row['value'])} for {_format_scope(row['scope'])}"
        f"{' (ended)' if row['ended'] else ''}"
        for row in rows
    ]
    return f" This replaces a manual change: {', '.join(words)}." if words else ""


def _format_scope(scope: str) -> str:
    """Return the scope of an override in words: concurrency of jobs@vm."""
    return describe_loop(scope) if "/" in scope and ", " not in scope else scope.replace("_", " ")


def format_loop_name(name: str) -> str:
    """Return the name of a loop within a sentence: concurrency of the pool jobs on vm."""
    return HOST_OF_POOL.sub(r" of the pool \1 on \2", describe_loop(name))


def format_override_title(override: Override) -> str:
    """Return what an override changes as the start of a sentence: Upper limit of worker rate of alert on n1."""
    return _build_change(override).title


def _build_change(override: Override) -> ManualChange:
    return build_override_change(build_status(override, NO_NOTICE))


def describe_overrides(made: Sequence[Override]) -> str:
    """Return in sentences what overrides change, and until when."""
    if len(made) > MAX_SENTENCES:
        return f"{len(made)} values of {_format_scope(str(Scope.build(made[0])))} are set {describe_end(made[0])}."
    return " ".join(_describe_override(override) for override in made)


def _describe_override(override: Override) -> str:
    change = _build_change(override)
    return f"{change.title} is {_format_state(change, change.value)} {describe_end(override)}."


def _format_state(change: ManualChange, value: str) -> str:
    """Return a value of a change as it follows the verb "is": on hold, in auto mode, paused, 40."""
    if change.kind not in ("hold", "mode"):
        return value
    return "on hold" if value == Loop.Mode.HOLD else f"in {value} mode"


def describe_mode(loop: Loop, mode: str, made: Sequence[Override]) -> str:
    """Return what the mode of a loop means, and until when. made: the overrides of the mode and of the manual value."""
    name, end = format_loop_name(loop.name), f" {describe_end(made[0])}" if made else ""
    if mode == Loop.Mode.MANUAL:
        value = f", with the value {format_short_value(made[1].value)}" if len(made) > 1 else ""
        return f"You control {name} manually{end}{value}."
    sentences = {
        Loop.Mode.HOLD: f"is on hold{end}: the loop takes no action.",
        Loop.Mode.ADVISE: f"is in advise mode{end}: the loop recommends actions, but takes none.",
        Loop.Mode.AUTO: f"is in auto mode{end}: the loop applies its decisions.",
    }
    return f"{name[:1].upper()}{name[1:]} {sentences[Loop.Mode(mode)]}"


def describe_ended(ended: Override, again: Override | None = None) -> str:
    """Return that an override has ended, and what is in force in its place."""
    change = _build_change(ended)
    if again is not None:
        value, owner = _format_state(change, _build_change(again).value), again.owner.get_username()
        return f"{change.title} is {value} again, set by {owner} {describe_end(again)}."
    if change.kind == "pause":
        return f"{change.title} continues."
    back = f" and is {_format_state(change, change.was)} again" if change.was else ""
    return f"{change.title} is no longer {_format_state(change, change.value)}{back}."


def format_short_value(value: object) -> str:
    if isinstance(value, Mapping):
        return ", ".join(f"{name} {format_short_value(item)}" for name, item in value.items()) or "nothing"
    if checks.FLAG.accepts(value):
        return str(value).lower()
    return f"{value:g}" if isinstance(value, int | float) and abs(value) < 1e6 else str(value)
