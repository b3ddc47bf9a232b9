"""The words of a decision: the action, a colon, the cause that binds with its numbers and units, a full stop.

    Start 1 worker: 20 events would exceed the 4 s wait limit before the next check. (Arrivals 3.3/s.)
    No action: queue is empty.

What else the law weighed stands in the decision's terms; at most a short remark in brackets follows here.
"""

from collections.abc import Sequence
from datetime import UTC, datetime

NO_ACTION = "No action"
ADVICE_ONLY = "advice only"
MAX_NAMES = 5
RAMP_GROWTH = 1.1  # a smaller growth of the load is no ramp


def format_reason(action: str, *causes: str, remarks: Sequence[str] = ()) -> str:
    """Return `action: cause; cause. (Remark; remark.)`; a cause may be a sentence with its own full stop."""
    text = f"{action}: {'; '.join(cause.removesuffix('.') for cause in causes)}."
    return f"{text} ({capitalize('; '.join(remarks))}.)" if remarks else text


def format_no_action(*causes: str, remarks: Sequence[str] = ()) -> str:
    return format_reason(NO_ACTION, *causes, remarks=remarks)


def format_not_applied(reason: str, why: str) -> str:
    """Return the reason of a decision that nobody applies: `Would start 1 worker (advice only): …`."""
    action, colon, cause = reason.partition(": ")
    would = action if action == NO_ACTION else f"Would {action[:1].lower()}{action[1:]}"
    return f"{would} ({why}){colon}{cause}"


def format_applied(reason: str) -> str:
    """Return the reason of an advice that somebody applied; other reasons are unchanged."""
    would, advice, cause = reason.partition(f" ({ADVICE_ONLY}): ")
    return f"{capitalize(would.removeprefix('Would '))}: {cause}" if advice else reason


def read_action(reason: str) -> str:
    """Return the action in a reason in the infinitive, applied or not: use n3."""
    action = reason.partition(":")[0].partition(" (")[0].removeprefix("Would ")
    return f"{action[:1].lower()}{action[1:]}"


def cause_of(reason: str) -> str:
    """Return the cause in a reason, without the action, remarks, and full stop."""
    return reason.partition(": ")[2].partition(" (")[0].removesuffix(".")


def capitalize(text: str) -> str:
    return f"{text[:1].upper()}{text[1:]}"


def format_number(value: float) -> str:
    """Format a number as 1,234 or 12.3."""
    return f"{value:,.0f}" if float(value).is_integer() or abs(value) >= 1_000 else f"{value:,.1f}"


def measure(value: float) -> str:
    """Format a measured value with four significant digits and without an exponent: 150,000, 432.9, 0.0123."""
    return f"{value:,.0f}" if abs(value) >= 1_000 else f"{value:.4g}"


def format_count(count: float, noun: str) -> str:
    """Format a count with its noun: 1 worker, 1,200 workers."""
    return f"{format_number(count)} {noun}{'' if count == 1 else 's'}"


def format_percent(share: float, digits: int = 0) -> str:
    """Format a share as a percentage: 0.92 as 92 %."""
    return f"{100 * share:,.{digits}f} %"


def format_clock(at: float) -> str:
    """Format a Unix time as 07:40 UTC."""
    return f"{datetime.fromtimestamp(at, UTC):%H:%M} UTC"


def format_expected(at: float, growth: float) -> str:
    """Name the load that is forecast: the ramp at 07:40 UTC, or the load expected at 07:40 UTC."""
    return f"the {'ramp' if growth >= RAMP_GROWTH else 'load expected'} at {format_clock(at)}"


def format_names(names: Sequence[str]) -> str:
    """Join names: n1, n2; for many, the first five and the number of the others."""
    more = len(names) - MAX_NAMES
    return ", ".join(names[:MAX_NAMES]) + (f" and {more} more" if more > 0 else "")


def are(names: Sequence[str]) -> str:
    return "is" if len(names) == 1 else "are"
