"""The question before an act: what will happen, for how long, and why; nothing is done without a reason."""

import math
import uuid
from collections.abc import Callable

from rich.text import Text
from textual.app import ComposeResult
from textual.containers import Vertical
from textual.screen import ModalScreen
from textual.widgets import Input, Label, Static

from console.api.request.calls import Refused, Unanswered
from console.terminal.acts import Act
from console.terminal.plain_text import plain_text

UNKNOWN_WHETHER = (
    "It is not known whether it was done. Enter asks again, under the same key: it is never done twice."
)
Sender = Callable[[Act, str, float | None, str], None]


class Confirm(ModalScreen[Act | None]):
    """Answers with the act once it was done, None where it was left. send: makes the call, and blocks."""

    AUTO_FOCUS = "#why"
    BINDINGS = [("escape", "leave", "Leave without doing it")]
    CSS = """
    Confirm { align: center middle; }
    Confirm > Vertical { width: 76; max-width: 100%; height: auto; max-height: 100%; border: solid $accent;
      padding: 0 1; background: $surface; }
    Confirm #said { color: $text-error; }
    """

    def __init__(self, act: Act, send: Sender, old: str) -> None:
        super().__init__()
        self.act, self._send, self._old = act, send, old
        self._key = uuid.uuid4().hex
        self._is_sent = False

    def compose(self) -> ComposeResult:
        with Vertical():
            yield Static(Text(plain_text(self.act.title), style="bold"), id="title")
            yield Static(Text(plain_text(self.act.effect)), id="effect")
            if self._old:
                yield Static(
                    Text(f"What you see is not live: {plain_text(self._old)}", style="bold"), id="old"
                )
            if self.act.minutes is not None:
                yield Label("For how many minutes", markup=False)
                yield Input(f"{self.act.minutes:g}", id="minutes", compact=True)
            yield Label("Reason, for the audit and for who comes next", markup=False)
            yield Input(id="why", placeholder="why", compact=True)
            yield Static("", id="said", markup=False)
            yield Static("Enter: do it · Escape: leave, nothing is done", markup=False)

    def action_leave(self) -> None:
        self.dismiss(None)

    def on_input_submitted(self, event: Input.Submitted) -> None:
        event.stop()
        why = self.query_one("#why", Input).value.strip()
        try:
            minutes = self._minutes()
        except ValueError:
            self._say("minutes: takes a number above 0.", "#minutes")
            return
        if not why:
            self._say("reason: is missing; say in a sentence why.", "#why")
        elif not self._is_sent:
            self._is_sent = True
            self._say("Asking the console …")
            self.run_worker(lambda: self._ask(why, minutes), thread=True, exit_on_error=False)

    def _minutes(self) -> float | None:
        if self.act.minutes is None:
            return None
        given = float(self.query_one("#minutes", Input).value)
        if not (math.isfinite(given) and given > 0):
            raise ValueError
        return given

    def _ask(self, why: str, minutes: float | None) -> None:
        try:
            self._send(self.act, why, minutes, self._key)
        except Unanswered:
            self.app.call_from_thread(self._refused, UNKNOWN_WHETHER)
        except Refused as error:
            # What was refused was not done: what is corrected is another request.
            self._key = uuid.uuid4().hex
            self.app.call_from_thread(self._refused, str(error))
        else:
            self.app.call_from_thread(self.dismiss, self.act)

    def _refused(self, words: str) -> None:
        self._is_sent = False
        self._say(words)

    def _say(self, words: str, at: str = "") -> None:
        self.query_one("#said", Static).update(Text(plain_text(words)))
        if at:
            self.query_one(at, Input).focus()
