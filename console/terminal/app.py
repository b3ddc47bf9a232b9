"""The application: it requests the newest snapshot each second, and never shows old data as live."""

import time
from collections.abc import Callable, Sequence
from typing import Any

from django.db import close_old_connections
from rich.text import Text
from textual.app import App, ComposeResult
from textual.binding import Binding
from textual.screen import Screen
from textual.widgets import DataTable, Footer, Static, TabbedContent, TabPane

from common.stored_document import convert
from console.api.request.calls import Calls, NoAnswer, RequestRejected
from console.pages.frame.frame import list_calling_alerts
from console.terminal.acts import Act
from console.terminal.confirm import Confirm
from console.terminal.freshness import ConnectionState, Exchanges, describe_connection
from console.terminal.more import RowDetails
from console.terminal.plain_text import build_cell, format_plain_text
from console.terminal.rows import (
    ACKNOWLEDGE,
    END,
    HOLD,
    LISTINGS,
    PAUSE,
    PAUSE_INTAKE,
    STYLES,
    TerminalRow,
    TerminalTable,
    ends_in,
    format_figures,
    limit_rows,
)
from queues.nodes.node_state import NORMAL
from workers.documents.snapshot import Snapshot

EACH_SECONDS = 1.0
TICK_SECONDS = 0.25
VIEW = {"of": "loops"}  # loops whole, of the rest what lists need (console/live/view.py)


class Top(App[None]):
    """source: what it shows, in words. clock: seconds that never jump."""

    ENABLE_COMMAND_PALETTE = False
    CSS = """
    #connection { height: auto; max-height: 3; }
    #connection.old { background: $error; color: $text; text-style: bold; }
    #headline { height: auto; max-height: 2; text-style: bold; }
    #figures { height: auto; max-height: 2; }
    TabbedContent { height: 1fr; }
    TabPane { padding: 0; }
    DataTable { height: 1fr; }
    .old DataTable, .old #headline, .old #figures, .old #detail { text-style: dim italic; }
    #detail { height: auto; max-height: 3; border-top: solid $primary; }
    """
    BINDINGS = [
        Binding("1", "list('worst')", "to 5: lists"),
        *(Binding(str(place), f"list('{each.name}')", show=False) for place, each in enumerate(LISTINGS, 1)),
        Binding("j", "move(1)", show=False),
        Binding("k", "move(-1)", show=False),
        Binding("enter", "more", "Details"),
        Binding("h", f"act('{HOLD}')", "Hold"),
        Binding("p", f"act('{PAUSE}')", "Pause"),
        Binding("i", f"act('{PAUSE_INTAKE}')", "Pause intake"),
        Binding("a", f"act('{ACKNOWLEDGE}')", "Acknowledge"),
        Binding("e", f"act('{END}')", "End"),
        Binding("q", "quit", "Quit"),
    ]

    def __init__(self, calls: Calls, source: str, clock: Callable[[], float] = time.monotonic) -> None:
        super().__init__()
        self._calls, self._source, self._clock = calls, format_plain_text(source, 60), clock
        self.seen = Exchanges(clock())
        self._rows: dict[str, list[TerminalRow]] = {name.name: [] for name in LISTINGS}
        self._is_asking = False

    def compose(self) -> ComposeResult:
        yield Static(id="connection", markup=False)
        yield Static(id="headline", markup=False)
        yield Static(id="figures", markup=False)
        with TabbedContent():
            for place, each in enumerate(LISTINGS, 1):
                with TabPane(f"{place} {each.title}", id=each.name):
                    yield DataTable(id=f"table-{each.name}", cursor_type="row", zebra_stripes=False)
        yield Static(id="detail", markup=False)
        yield Footer(show_command_palette=False)

    def on_mount(self) -> None:
        self._base: Screen[Any] = self.screen  # below whatever asks something
        for name in LISTINGS:
            self._get_table(name.name).add_columns(*(build_cell(title) for title in name.columns))
        self._get_table(LISTINGS[0].name).focus()
        self.set_interval(EACH_SECONDS, self._ask)
        self.set_interval(TICK_SECONDS, self._show_age)
        self._ask()
        self._show_age()

    # Requests.

    def _ask(self) -> None:
        if not self._is_asking:
            self._is_asking = True
            self.run_worker(self._observe, thread=True, exit_on_error=False)

    def _observe(self) -> None:
        """Observe in a separate thread, so that a slow answer delays no key."""
        before, rows = self.seen, self._rows
        try:
            answer = self._call("GET", "/api/v1/live", query=VIEW)
            snapshot = convert(Snapshot, answer["snapshot"], "snapshot")
            seen = before.add_snapshot(snapshot, self._calls.get_unix_time(), self._clock())
            now = compute_plant_time(seen, self._clock())
            rows = {name.name: limit_rows(name.rows(snapshot, now)) for name in LISTINGS}
        except RequestRejected as error:
            seen = before.add_error(str(error))
        except Exception as error:  # requested again whatever the answer was
            seen = before.add_error(f"The console's response is not a snapshot ({type(error).__name__}).")
        self.call_from_thread(self._saw, seen, rows)

    def _call(self, method: str, path: str, **given: Any) -> Any:
        """Call the API. Raises `RequestRejected` for any error: the terminal shows it, and tries again."""
        close_old_connections()
        try:
            return self._calls.ask(method, path, **given)
        except RequestRejected:
            raise
        except Exception as error:
            raise NoAnswer(f"The console failed ({type(error).__name__}).") from error

    def _saw(self, seen: Exchanges, rows: dict[str, list[TerminalRow]]) -> None:
        self._is_asking = False
        self.seen = seen
        if rows is not self._rows:
            self._fill(rows)
        self._show_age()

    def _send(self, act: Act, why: str, minutes: float | None, key: str) -> None:
        self._call("POST", act.path, body=act.document(why, minutes), key=key)

    # Display.

    def _get_connection_state(self) -> ConnectionState:
        return describe_connection(self.seen, self._clock())

    def _write(self, place: str, words: str, style: str = "") -> None:
        self._base.query_one(f"#{place}", Static).update(Text(words, style=style))

    def _show_age(self) -> None:
        """Show the state of the connection, and whether the rest is out of date."""
        if not self._base.is_running:
            return  # it is being closed
        fresh, snapshot = self._get_connection_state(), self.seen.snapshot
        word = fresh.word if fresh.is_live else fresh.word.upper()
        end = f"  ·  {self._source}" if fresh.is_live else ""
        self._write("connection", f"{word}: {format_plain_text(fresh.sentence)}{end}")
        self._base.query_one("#connection").set_class(not fresh.is_live, "old")
        self._base.set_class(not fresh.is_live, "old")
        if snapshot is not None:
            was, health = "" if fresh.is_live else "Last known: ", snapshot.health
            headline = f"{format_plain_text(health.sentence)} {format_plain_text(health.doing)}".strip()
            style = "" if health.state == NORMAL else STYLES.get(health.state, "")
            self._write("headline", was + headline, style)
            self._write("figures", f"{was}{format_figures(snapshot)}{self._open(snapshot)}")

    def _open(self, snapshot: Snapshot) -> str:
        """Return open incidents that need attention, and manual changes in force.

        The result has the time to the next end of a change.
        """
        in_force = len(snapshot.overrides) + len(snapshot.hands)
        words = f" · incidents {len(list_calling_alerts(snapshot))} · manual changes {in_force}"
        ends = [override.expires_at for override in snapshot.overrides if override.expires_at is not None]
        return (
            f"{words}, next expires in {ends_in(min(ends), compute_plant_time(self.seen, self._clock()))}"
            if ends
            else words
        )

    def _fill(self, rows: dict[str, list[TerminalRow]]) -> None:
        self._rows = rows
        for name in LISTINGS:
            self._refill(name, self._get_table(name.name), rows[name.name])
        self._show_detail()

    def _refill(self, listing: TerminalTable, table: DataTable[Text], rows: Sequence[TerminalRow]) -> None:
        """Fill the table again, and keep the cursor on its row."""
        chosen = self._get_selected_key(table)
        scroll = table.scroll_y
        table.clear()
        for row in rows or [TerminalRow("", [build_cell(listing.empty)])]:
            table.add_row(*row.cells, *[build_cell("")] * (len(listing.columns) - len(row.cells)), key=row.key)
        keys = [row.key for row in rows]
        if chosen in keys:
            table.move_cursor(row=keys.index(chosen), scroll=False)
            table.scroll_to(y=scroll, animate=False)

    def _show_detail(self) -> None:
        if not self._base.is_running:
            return
        row = self._get_selected()
        self._write("detail", " ".join(format_plain_text(detail) for detail in row.details) if row else "")
        self.refresh_bindings()

    def on_data_table_row_highlighted(self, event: DataTable.RowHighlighted) -> None:
        self._show_detail()

    def on_data_table_row_selected(self, event: DataTable.RowSelected) -> None:
        self.action_more()

    def on_tabbed_content_tab_activated(self, event: TabbedContent.TabActivated) -> None:
        self._show_detail()

    def _get_table(self, name: str) -> DataTable[Text]:
        table: DataTable[Text] = self._base.query_one(f"#table-{name}", DataTable)
        return table

    def _list_visible_rows(self) -> str:
        return str(self._base.query_one(TabbedContent).active or LISTINGS[0].name)

    def _get_selected_key(self, table: DataTable[Text]) -> str | None:
        if not table.row_count:
            return None
        return table.coordinate_to_cell_key(table.cursor_coordinate).row_key.value

    def _get_selected(self) -> TerminalRow | None:
        name = self._list_visible_rows()
        key = self._get_selected_key(self._get_table(name))
        return next((row for row in self._rows[name] if row.key == key), None)

    # Actions.

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        """Enable keys only where they have an effect."""
        if action == "act":
            row = self._get_selected()
            return row is not None and parameters[0] in row.acts
        return True

    def action_list(self, name: str) -> None:
        self._base.query_one(TabbedContent).active = name
        self._get_table(name).focus()

    def action_move(self, steps: int) -> None:
        table = self._get_table(self._list_visible_rows())
        table.move_cursor(row=table.cursor_row + steps)

    def action_act(self, name: str) -> None:
        row = self._get_selected()
        if row is not None and name in row.acts:
            fresh = self._get_connection_state()
            old = "" if fresh.is_live else fresh.sentence
            self.push_screen(Confirm(row.acts[name], self._send, old), self._report_done)

    def _report_done(self, act: Act | None) -> None:
        if act is not None:
            done = f"Done: {format_plain_text(act.title)}. The change appears when the plant reports it."
            self.notify(done, markup=False)
            self._ask()

    def action_more(self) -> None:
        row = self._get_selected()
        if row is not None:
            title = " · ".join(row_cell.plain for row_cell in row.cells if row_cell.plain)
            self.push_screen(RowDetails(title, row.details, self._changes_of(row)))

    def _changes_of(self, row: TerminalRow) -> Callable[[], Any] | None:
        number = row.incident
        return None if number is None else lambda: self._call("GET", f"/api/v1/alerts/{number}/changes")


def compute_plant_time(seen: Exchanges, now: float) -> float:
    """Return the time by the plant's clock."""
    at = seen.snapshot.at if seen.snapshot is not None else None
    return (at or 0.0) + seen.compute_age(now)
