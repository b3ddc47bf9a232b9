"""All details of a row; for an incident also what changed before it, the most likely cause first."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from rich.text import Text
from textual.app import ComposeResult
from textual.containers import VerticalScroll
from textual.screen import ModalScreen
from textual.widgets import Static

from console.api.request.calls import RequestRejected
from console.display.formats import format_value
from console.terminal.plain_text import format_plain_text

MAX_CHANGES = 5


class RowDetails(ModalScreen[None]):
    """sentences: of the row. changes: requests the changes before an incident; None: it is no incident."""

    BINDINGS = [("escape,enter,q", "dismiss", "Back")]
    CSS = """
    More { align: center middle; }
    More > VerticalScroll { width: 76; max-width: 100%; height: auto; max-height: 90%; border: solid $accent;
      padding: 0 1; background: $surface; }
    """

    def __init__(self, title: str, sentences: Sequence[str], changes: Callable[[], Any] | None) -> None:
        super().__init__()
        self._title, self._sentences, self._changes = title, sentences, changes

    def compose(self) -> ComposeResult:
        with VerticalScroll():
            yield Static(Text(format_plain_text(self._title), style="bold"))
            for sentence in self._sentences:
                yield Static(Text(format_plain_text(sentence)))
            yield Static(Text("Loading earlier changes …" if self._changes else ""), id="changes")
            yield Static("Escape: back", markup=False)

    def on_mount(self) -> None:
        if self._changes is not None:
            self.run_worker(self._ask, thread=True, exit_on_error=False)

    def _ask(self) -> None:
        assert self._changes is not None
        try:
            lines = change_lines(self._changes())
        except RequestRejected as error:
            lines = [f"Changes not available: {error}"]
        except (KeyError, TypeError, ValueError, AttributeError):
            lines = ["Changes not available: the console's response is not a list of changes."]
        self.app.call_from_thread(self._show, lines)

    def _show(self, lines: Sequence[str]) -> None:
        self.query_one("#changes", Static).update(Text("\n".join(format_plain_text(line) for line in lines)))


def change_lines(answer: Any) -> list[str]:
    """Return the most likely changes before an incident, a line each."""
    changes = answer["changes"]
    if not changes:
        reach = format_value(answer["reach_seconds"], "age")
        return [f"No changes here or upstream in the previous {reach}."]
    return [
        "Earlier changes, the most likely cause first:",
        *(_change_line(change) for change in changes[:MAX_CHANGES]),
    ]


def _change_line(change: Mapping[str, Any]) -> str:
    by = f", by {change['by']}" if change["by"] else ""
    return f"{format_value(change['delay_seconds'], 'age')} before: {change['words']}{by}"
