"""Simulated Redis-protocol servers: in this process, on virtual time, with Weir's own Lua scripts.

The commands and Lua are those of `fakeredis`; a contract test compares them with a real server for every script. A
server has a host, a clock of its own, and connections that a restart closes. What a client sends to it takes the way
through `bench.simulation.network`.
"""

import copy
import hashlib
from collections.abc import Callable, Sequence
from typing import Any

import redis
from fakeredis import FakeServer
from fakeredis._core import Database
from fakeredis._helpers import SimpleError
from fakeredis._socket import FakeSocket
from fakeredis.commands_mixins import scripting_mixin

from bench.simulation import context
from bench.simulation.scheduler import VirtualThread

Words = Sequence[bytes]
READ_ONLY = "You can't write against a read only replica."
# Commands that a replica answers, too: the other commands of Weir write.
ON_REPLICAS = frozenset({b"PING", b"INFO", b"TIME", b"ROLE", b"CLIENT", b"SELECT", b"WAIT", b"GET", b"EXISTS"})


# A real server checks this when a script is first loaded; here, it took most of the time of each call.
scripting: Any = scripting_mixin
scripting._check_for_lua_globals = lambda runtime, expected: None


class RecordingDatabase(Database):
    """A database that notes which keys have changed."""

    def __init__(self, changed: set[bytes], *arguments: Any) -> None:
        super().__init__(*arguments)
        self._changed = changed

    def notify_watch(self, key: bytes) -> None:
        self._changed.add(key)
        super().notify_watch(key)

    def wake_all(self) -> None:
        """Do nothing: no client waits in a command (`Session._blocking`)."""

    def __delitem__(self, key: bytes) -> None:
        self._changed.add(key)
        super().__delitem__(key)


class Session(FakeSocket):
    """A client's connection to a server, on the server's side."""

    def __init__(self, server: "VirtualServer") -> None:
        self.server, self.is_open = server, True
        super().__init__(server.store, db=0, client_class=redis.Redis)

    def answer(self, words: Words) -> Any:
        self._process_command(list(words))
        responses: Any = self.responses
        return responses.get_nowait()

    def eval(self, script: bytes, numkeys: int, *words: bytes) -> Any:
        """Run a script, which is compiled once; `fakeredis` compiles it each time, and rejects a first line `#!lua`."""
        store: Any = self._server
        store.script_cache[hashlib.sha1(script).hexdigest().encode()] = script
        runtime = self._get_server_runtime(store)
        function = self.server.functions.get(script)
        if function is None:
            text = b"--" + script if script.startswith(b"#!") else script
            function = self.server.functions[script] = runtime.compile(text)
        store._lua_current_socket[0] = self
        self._script_resp = 2
        store._lua_set_keys_argv(runtime.table_from(words[:numkeys]), runtime.table_from(words[numkeys:]))
        try:
            reply = function()
        except scripting_mixin.LUA_MODULE.LuaError as error:
            raise SimpleError(f"ERR {error}") from None
        finally:
            self._script_resp = None
        return self._convert_lua_result(reply, nested=False)

    def _xreadgroup_reply(self, res: dict[bytes, Any] | None) -> Any:
        """Shape the reply for the caller: `fakeredis` answers a script in the protocol of the script's client."""
        if self._resp_version == 2:
            return [[stream, entries] for stream, entries in res.items()] if res else None
        return super()._xreadgroup_reply(res)

    def _blocking(self, timeout: float | None, func: Callable[[bool], Any], shape: Any = None) -> Any:
        result = func(True)  # nothing waits here: the virtual time of the client would stand still
        return result if shape is None else shape(result)


class VirtualServer:
    """A server. on_command: called with the words, the reply, and the thread of the client."""

    def __init__(self, name: str, host: str, port: int) -> None:
        self.name, self.host, self.port = name, host, port
        self.is_up = True
        self.clock_offset = 0.0
        self.functions: dict[bytes, Any] = {}  # script → the function that was compiled from it
        self.primary: VirtualServer | None = None  # None: it is a primary
        self.replicas: list[Replica] = []
        self.sessions: list[Session] = []
        self.on_command: list[Callable[[Words, object, VirtualThread | None], None]] = []
        self.changed: set[bytes] = set()
        self.store = self._build_store()
        self.writes = 0
        self._own_session = Session(self)

    @property
    def address(self) -> str:
        return f"{self.host}:{self.port}"

    @property
    def database(self) -> Database:
        database: Database = self.store.dbs[0]
        return database

    def open_session(self, protocol: int = 2) -> Session:
        session = Session(self)
        session.answer([b"HELLO", b"%d" % protocol])
        self.sessions.append(session)
        return session

    def execute(self, session: Session, words: Words) -> Any:
        """Execute a command by the server's clock, and return its reply. Errors are returned, not raised."""
        name = words[0].upper()
        scheduler = context.scheduler()
        before, scheduler.current = scheduler.current, None
        scheduler.now += self.clock_offset
        try:
            if name == b"WAIT":
                return sum(replica.offset >= self.writes for replica in self.replicas)
            if name == b"INFO":
                return self._describe()
            if self.primary is not None and name not in ON_REPLICAS:
                return redis.ReadOnlyError(READ_ONLY)
            reply = session.answer(words)
        finally:
            scheduler.now -= self.clock_offset
            scheduler.current = before
        if self.changed:
            self.writes += 1
            for replica in self.replicas:
                replica.changed |= self.changed
            self.changed.clear()
        for act in self.on_command:
            act(words, reply, before)
        return reply

    def restart(self) -> None:
        """Close all connections. What is stored stays."""
        self.close_sessions()
        self.is_up = True

    def start_again(self) -> None:
        """Start after a stop, unless it has been started meanwhile."""
        if not self.is_up:
            self.restart()

    def stop(self) -> None:
        self.close_sessions()
        self.is_up = False

    def close_sessions(self) -> None:
        for session in self.sessions:
            session.is_open = False
        self.sessions.clear()

    def empty(self) -> None:
        """Lose everything, like a server whose disk is gone."""
        self.store = self._build_store()
        self._own_session = Session(self)
        for replica in self.replicas:
            replica.copy_all()

    def copy_from(self, other: "VirtualServer") -> None:
        """Replace the whole store by a copy of another server's."""
        database = self.database
        database.clear()
        for key, item in other.database._dict.items():
            database[key] = copy.deepcopy(item)
        self.changed.clear()
        self.writes = other.writes

    def ask(self, *words: str) -> Any:
        """Return the reply to a command of the simulation itself: at once, and without faults."""
        return self.execute(self._own_session, [word.encode() for word in words])

    def _build_store(self) -> FakeServer:
        self.functions.clear()
        store = FakeServer(version=(8,), server_type="valkey")
        store.dbs[0] = RecordingDatabase(self.changed, store.lock)
        return store

    def _describe(self) -> bytes:
        rows = {
            "used_memory": 1_000_000 + 100 * len(self.database._dict),
            "maxmemory": 0,
            "used_cpu_sys": 0.0,
            "used_cpu_user": 0.0,
            "role": "master" if self.primary is None else "slave",
        }
        return "".join(f"{name}:{value}\r\n" for name, value in rows.items()).encode()


class Replica:
    """The copy of a primary on another server. offset: the primary's writes that it has."""

    def __init__(self, server: VirtualServer, primary: VirtualServer) -> None:
        self.server, self.primary = server, primary
        self.offset, self.changed = 0, set[bytes]()
        server.primary = primary
        self.copy_all()

    def copy_all(self) -> None:
        self.server.copy_from(self.primary)
        self.changed.clear()
        self.offset = self.primary.writes

    def copy_changes(self) -> None:
        """Copy everything that the primary has written so far."""
        source, target = self.primary.database, self.server.database
        for key in self.changed:
            item = source._dict.get(key)
            if item is None:
                target._dict.pop(key, None)
            else:
                target[key] = copy.deepcopy(item)
        self.changed.clear()
        self.server.changed.clear()
        self.offset = self.server.writes = self.primary.writes
