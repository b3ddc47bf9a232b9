"""Template tags of batch tasks: a run's state, its progress, and durations of runs."""

from collections.abc import Sequence
from typing import Any, Protocol

from django import template
from django.urls import reverse
from django.utils.html import format_html, format_html_join
from django.utils.safestring import SafeString

from console.display.formats import format_value
from controllers.framework.reason import format_count

register = template.Library()

MIN_SHARE = 0.04  # minimum height, so that each bar is visible


class RunWithLength(Protocol):
    """The data of a run's bar (`console.actions.task_documents.DescribedRun`)."""

    @property
    def run(self) -> int: ...

    @property
    def state(self) -> str: ...

    @property
    def seconds(self) -> float | None: ...


@register.simple_tag
def run_state(state: str) -> SafeString:
    """Return glyph and word of a run's or a chunk's state; only states that need attention are colored."""
    return format_html(
        '<span class="run-state" data-run-state="{}"><i class="glyph" aria-hidden="true"></i>{}</span>',
        state,
        "Canceled" if state == "cancelled" else state.capitalize(),
    )


@register.filter
def lasting(seconds: Any) -> str:
    """Return a duration in words: 0.8 s, 42 s, 3 min 20 s, 2 h 5 min."""
    if seconds is None:
        return format_value(None)
    if seconds < 60:
        return f"{format_value(seconds, 'seconds' if seconds < 10 else 'integer')} s"
    minutes, rest = divmod(round(seconds), 60)
    if minutes < 60:
        return f"{minutes} min {rest} s" if rest else f"{minutes} min"
    hours, minutes = divmod(minutes, 60)
    return f"{hours} h {minutes} min" if minutes else f"{hours} h"


@register.simple_tag
def durations(runs: Sequence[RunWithLength], linked: bool = False) -> SafeString:
    """Return bars of the durations of runs, the oldest first; failed and canceled ones are highlighted."""
    ended = [(run, run.seconds) for run in runs if run.seconds is not None]
    if not ended:
        return SafeString("")
    longest = max(seconds for _, seconds in ended) or 1.0
    bars = format_html_join("", "{}", ((_render_bar(run, seconds, longest, linked),) for run, seconds in ended))
    if linked:
        return format_html('<ol class="durations large">{}</ol>', bars)
    label = f"The last {format_count(len(ended), 'run')} took up to {lasting(longest)}"
    return format_html('<span class="durations" role="img" aria-label="{}">{}</span>', label, bars)


def _render_bar(run: RunWithLength, seconds: float, longest: float, linked: bool) -> SafeString:
    share = max(MIN_SHARE, seconds / longest)
    bar = format_html('<i data-run-state="{}" style="--share: {}"></i>', run.state, f"{share:.3f}")
    if not linked:
        return bar
    said = f"Run {run.run}: {run.state}, {lasting(seconds)}"
    url = reverse("run", args=[run.run])
    return format_html('<li><a href="{}" title="{}" aria-label="{}">{}</a></li>', url, said, said, bar)
