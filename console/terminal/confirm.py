"""The confirmation of an action: its effect, its duration, and the reason, without which nothing is done."""

import uuid
from collections.abc import Callable
from typing import Any

from rich.text import Text
from textual.app import App, ComposeResult
from textual.containers import Vertical
from textual.screen import ModalScreen
from textual.widgets import Input, Label, Static

from common.parsing import read_number
from console.api.request.calls import NoAnswer, RequestRejected
from console.terminal.acts import Act
from console.terminal.plain_text import format_plain_text

UNKNOWN_WHETHER = (
    "The result is unknown. Press Enter to send the action again with the same key; it is never applied twice."
)
DO = "Enter: confirm · Escape: cancel, nothing is done"
AGAIN = "Escape: close; the action may still be applied"
Sender = Callable[[Act, str, float | None, str], None]


class Confirm(ModalScreen[Act | None]):
    """Answers with the action once it was done, None if it was canceled. send: makes the call, and blocks."""

    AUTO_FOCUS = "#why"
    BINDINGS = [("escape", "leave", "Cancel")]
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
        self._is_sent = self._may_be_done = False

    def compose(self) -> ComposeResult:
        with Vertical():
            yield Static(Text(format_plain_text(self.act.title), style="bold"), id="title")
            yield Static(Text(format_plain_text(self.act.effect)), id="effect")
            if self._old:
                yield Static(Text(f"The display is not live: {format_plain_text(self._old)}", style="bold"), id="old")
            if self.act.minutes is not None:
                yield Label("Duration in minutes", markup=False)
                yield Input(f"{self.act.minutes:g}", id="minutes", compact=True)
            yield Label("Reason (recorded in the audit log)", markup=False)
            yield Input(id="why", placeholder="why", compact=True)
            yield Static("", id="said", markup=False)
            yield Static(DO, id="keys", markup=False)

    def action_leave(self) -> None:
        if self._may_be_done:
            self._notify_result("Result unknown")
        self.dismiss(None)

    def on_input_submitted(self, event: Input.Submitted) -> None:
        event.stop()
        why = self.query_one("#why", Input).value.strip()
        try:
            minutes = self._read_minutes()
        except ValueError:
            self._say("minutes: must be more than 0.", "#minutes")
            return
        if not why:
            self._say("reason: is missing; give a reason in a sentence.", "#why")
        elif not self._is_sent:
            self._is_sent = self._may_be_done = True
            self._say("Waiting for the console …")
            app = self.app  # which a closed screen does not find any more
            self.run_worker(lambda: self._ask(app, why, minutes), thread=True, exit_on_error=False)

    def _read_minutes(self) -> float | None:
        if self.act.minutes is None:
            return None
        given = read_number(self.query_one("#minutes", Input).value, "minutes")
        if given <= 0:
            raise ValueError
        return given

    def _ask(self, app: App[Any], why: str, minutes: float | None) -> None:
        try:
            self._send(self.act, why, minutes, self._key)
        except NoAnswer:
            app.call_from_thread(self._report_no_answer)
        except RequestRejected as error:
            app.call_from_thread(self._report_refusal, str(error))
        else:
            app.call_from_thread(self._confirm)

    def _confirm(self) -> None:
        if self.is_current:
            self.dismiss(self.act)
        else:
            self._notify_result("Done")

    def _report_no_answer(self) -> None:
        self._is_sent = False
        if self.is_current:
            self._say(UNKNOWN_WHETHER)

    def _report_refusal(self, words: str) -> None:
        # A rejected request was not carried out: the corrected one is another request.
        self._key = uuid.uuid4().hex
        self._is_sent = self._may_be_done = False
        if self.is_current:
            self._say(words)
        else:
            self._notify_result(f"Rejected ({words})")

    def _notify_result(self, words: str) -> None:
        """Show the result, even if the screen was closed."""
        self.app.notify(format_plain_text(f"{words}: {self.act.title}."), markup=False)

    def _say(self, words: str, at: str = "") -> None:
        self.query_one("#said", Static).update(Text(format_plain_text(words)))
        self.query_one("#keys", Static).update(Text(AGAIN if self._may_be_done else DO))
        if at:
            self.query_one(at, Input).focus()
