"""The environment variables of a process: each one declared once, with its type, default, and meaning.

No other module reads the environment. Code that needs a value reads its variable here, and code that passes values on
to a process takes them from PROCESS (`workers.host.environment` says which). An empty variable counts as not set.
"""

import os
import re
from collections.abc import Iterator, Mapping, MutableMapping
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

from common.errors import BadInput
from common.parsing import parse_decimal_number, split_words

# of this process
PROCESS: MutableMapping[str, str] = os.environ
# Linear algebra libraries read these variables when NumPy is imported. Without the variables, the libraries start a
# thread for each core. A law's matrices are small: two competing threads took 1.1 s for work that one thread does in 13
# ms. Every process imports this module before NumPy, so the limit applies to all processes. Values that are already set
# are kept.
MATH_THREADS = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")
for _name in MATH_THREADS:
    PROCESS.setdefault(_name, "1")
LOCAL_CONTROL = "redis://127.0.0.1:6379/0"  # if no setting says where the control server is
MAX_NUMBER = 10
MIN_SECONDS, MAX_SECONDS = 0.1, 3600.0


@dataclass(frozen=True)
class Variable:
    """A text variable.

    default: its value if it is not set. unset: what that means, in words. secret: its value appears in no message and
    no page, and in no process that does not use it.
    """

    name: str
    meaning: str
    default: str = ""
    unset: str = ""
    secret: bool = False

    def is_set(self, environment: Mapping[str, str] = PROCESS) -> bool:
        """Return whether it has a value."""
        return bool(environment.get(self.name))

    def get_text(self, environment: Mapping[str, str] = PROCESS) -> str:
        """Return its value, or the default."""
        return environment.get(self.name) or self.default

    def get_words(self, environment: Mapping[str, str] = PROCESS) -> list[str]:
        """Return its words, separated by spaces. Quotes keep a word with spaces together."""
        return split_words(self.get_text(environment), self.name)


class Folder(Variable):
    """The path of a file or a folder."""

    def get_path(self, environment: Mapping[str, str] = PROCESS) -> Path:
        """Return the path, relative to where the process was started."""
        return Path(self.get_text(environment))


class Switch(Variable):
    """A switch: 1 or 0."""

    def is_on(self, default: bool = False, environment: Mapping[str, str] = PROCESS) -> bool:
        """Return whether it is on. Raises `BadInput` that names the variable."""
        text = self.get_text(environment)
        if text not in ("", "0", "1"):
            raise BadInput(self.name, f"must be 1 or 0, not {text[:40]!r}.")
        return text == "1" if text else default


@dataclass(frozen=True)
class OneOf(Variable):
    """One of some words."""

    words_known: tuple[str, ...] = ()

    def get_choice(self, environment: Mapping[str, str] = PROCESS) -> str:
        """Return the word. Raises `BadInput` that names the variable."""
        text = self.get_text(environment)
        if text not in self.words_known:
            raise BadInput(self.name, f"must be one of {', '.join(self.words_known)}, not {text[:40]!r}.")
        return text


class WholeNumber(Variable):
    """A whole number from 0."""

    def get_whole_number(self, default: int | None = None, environment: Mapping[str, str] = PROCESS) -> int:
        """Return the number. Raises `BadInput` that names the variable."""
        text = self.get_text(environment)
        if text and not (text.isascii() and text.isdigit() and len(text) <= MAX_NUMBER):
            message = f"must be a whole number with at most {MAX_NUMBER} digits, not {text[:40]!r}."
            raise BadInput(self.name, message)
        return int(environment.get(self.name) or (self.default if default is None else default))


@dataclass(frozen=True)
class Seconds(Variable):
    """A duration from MIN_SECONDS to `most`, both inclusive, in seconds."""

    most: float = MAX_SECONDS

    def get_seconds(self, environment: Mapping[str, str] = PROCESS) -> float:
        """Return the duration. Raises `BadInput` that names the variable."""
        text = self.get_text(environment)
        value = parse_decimal_number(text) or 0.0
        if not MIN_SECONDS <= value <= self.most:
            raise BadInput(self.name, f"must be {MIN_SECONDS:g} to {self.most:g} s, not {text[:40]!r}")
        return value


class Address(Variable):
    """The address of a service, http:// or https://, without user and password."""

    def get_address(self, environment: Mapping[str, str] = PROCESS) -> str:
        """Return the address.

        Raises `BadInput` that names the variable; it is not quoted, as it may contain a password.
        """
        text = self.get_text(environment)
        try:
            parts = urlsplit(text)
            well_formed = parts.scheme in ("http", "https") and parts.hostname and parts.port != 0
        except ValueError:
            well_formed = False
        if text and (not well_formed or "@" in parts.netloc):
            raise BadInput(self.name, "must be a URL such as http://collector:4318, without a username and password.")
        return text


# The plant on this machine.
DATA = Folder(
    "WEIR_DATA",
    "data folder of a local plant: database, node files, checkpoints, and secrets",
    ".weir",
    unset=".weir in the checkout, or in the home folder for an installed wheel",
)
DATABASE_URL = Variable("DATABASE_URL", "URL of the console's database", unset="SQLite in WEIR_DATA", secret=True)
STATEMENT_SECONDS = WholeNumber(
    "WEIR_STATEMENT_SECONDS", "PostgreSQL statement timeout for pages, s (0: unlimited)", "30"
)
LOCK_SECONDS = WholeNumber(
    "WEIR_LOCK_SECONDS", "PostgreSQL lock timeout for background processes, s (0: unlimited)", "10"
)
TRANSACTION_SECONDS = WholeNumber(
    "WEIR_TRANSACTION_SECONDS", "PostgreSQL idle transaction timeout for background processes, s (0: unlimited)", "60"
)
REDIS_URL = Variable(
    "REDIS_URL",
    "URL of the control server (broker, leases, and live state): redis://…, or"
    " sentinel://user:password@host1,host2/NAME/0",
    unset="the control server of ./run's plant",
    secret=True,
)
NODE_LOGIN = Variable(
    "WEIR_NODE_LOGIN", "user:password of this process for nodes whose URLs contain no login", secret=True
)
NODES = Variable("WEIR_NODES", "for manage.py seed: the nodes, as name=redis://host:port/0, separated by spaces")
NODE_REPLICAS = Variable(
    "WEIR_NODE_REPLICAS",
    "for manage.py seed: the servers that copy nodes, as name=redis://host:port/0; with ./run, `local` starts them",
)
ADMIN_PASSWORD = Variable(
    "WEIR_ADMIN_PASSWORD", "for manage.py seed: the first administrator's password", unset="random", secret=True
)

OBSERVER_AGENTS = Switch(
    "WEIR_OBSERVER_AGENTS",
    "1: the observer also runs the agents of all nodes in WEIR_NODES; 0: each agent is a separate process",
    unset="0; with ./run, 1",
)
CONTROL_BEAT = Switch(
    "WEIR_CONTROL_BEAT",
    "1: the control worker also runs the beat; 0: the beat is a separate process",
    unset="0; with ./run, 1",
)
SUPERVISOR = Variable("WEIR_SUPERVISOR", "socket of the supervisor; set by ./run", unset="no supervisor")

# Production and access.
PRODUCTION = Switch(
    "WEIR_PRODUCTION", "1: production mode; secrets must be set in the environment, and cookies require HTTPS"
)
SECRET_KEY = Variable(
    "WEIR_SECRET_KEY",
    "key that signs sessions; required if WEIR_PRODUCTION is 1",
    unset="stored in WEIR_DATA",
    secret=True,
)
AUDIT_KEY = Variable(
    "WEIR_AUDIT_KEY",
    "keys of the audit log, separated by spaces: the first key signs new entries, and all keys verify",
    unset="WEIR_SECRET_KEY",
    secret=True,
)
WITHOUT_PAGES = Switch("WEIR_WITHOUT_PAGES", "1: this production process serves no pages and needs no WEIR_SECRET_KEY")
HEARTBEAT_FILE = Variable(
    "WEIR_HEARTBEAT_FILE", "file that the process touches every few seconds, for health checks", unset="none"
)
HOSTS = Variable(
    "WEIR_HOSTS",
    "allowed hostnames of requests, separated by spaces",
    "localhost 127.0.0.1 [::1] testserver",
    unset="localhost",
)
TRUSTED_PROXIES = Variable(
    "WEIR_TRUSTED_PROXIES", "networks of proxies whose X-Forwarded-For and X-Forwarded-Proto headers are trusted"
)
HSTS_SECONDS = WholeNumber(
    "WEIR_HSTS_SECONDS", "HSTS max-age, s (0: no header)", unset="1 year in production, otherwise 0"
)
HSTS_SUBDOMAINS = Switch("WEIR_HSTS_SUBDOMAINS", "1: HSTS includes subdomains", unset="1 in production, otherwise 0")
SSL_REDIRECT = Switch(
    "WEIR_SSL_REDIRECT", "1: redirects HTTP to HTTPS, except /healthz and /readyz", unset="1 in production, otherwise 0"
)
METRICS_LOOPBACK = Switch(
    "WEIR_METRICS_LOOPBACK",
    "1: requests for /metrics from this machine need no token",
    unset="0 in production, otherwise 1",
)
LIVE_SOCKETS_PER_PERSON = WholeNumber(
    "WEIR_LIVE_SOCKETS_PER_PERSON", "maximum number of live connections (/live/) per user", "20"
)
LIVE_SOCKETS = WholeNumber("WEIR_LIVE_SOCKETS", "maximum number of live connections per web process", "500")
CONNECTIONS_PER_ADDRESS = WholeNumber(
    "WEIR_CONNECTIONS_PER_ADDRESS",
    "maximum number of connections per client address (IPv6: per /64) to a web process, except trusted proxies",
    "256",
)
CONNECTIONS = WholeNumber(
    "WEIR_CONNECTIONS",
    "maximum number of connections per web process; lower if the open file limit requires it",
    "4096",
)
EGRESS_ALLOW = Variable(
    "WEIR_EGRESS_ALLOW", "internal networks that addresses entered by users may resolve to: 127.0.0.0/8 …"
)
HANDLERS = Variable(
    "WEIR_HANDLERS",
    "Python code that users may set as queue handlers and task jobs: packages, modules, or full paths,"
    " separated by commas",
    unset="none",
)
TICK_PROCESSES = WholeNumber(
    "WEIR_TICK_PROCESSES",
    "maximum number of processes in which a control worker ticks its loops; 1: only its own process. The worker starts"
    " more processes if at least 500 loops of containers are due. Each process uses about 100 MB of memory",
    unset="the number of cores, at most 4",
)
CAPABILITIES = Variable(
    "WEIR_CAPABILITIES",
    "capabilities of a worker host, separated by spaces, such as `ssd zone-a`. Queues and tasks can require them. The"
    " name of a node (n1) means that the host is near this node",
    unset="none",
)
KUBERNETES_CA = Folder(
    "WEIR_KUBERNETES_CA",
    "PEM file with the CA certificates for Kubernetes API servers",
    unset="the cluster's CA in a pod, otherwise the host's CA certificates",
)

# External login.
OIDC_ISSUER = Variable(
    "WEIR_OIDC_ISSUER",
    "URL of the OpenID Connect provider: https://login.example.org/realm",
    unset="none: no OpenID Connect login",
)
OIDC_CLIENT_ID = Variable("WEIR_OIDC_CLIENT_ID", "client ID at the provider; the callback path is /oidc/callback/")
OIDC_CLIENT_SECRET = Variable("WEIR_OIDC_CLIENT_SECRET", "client secret at the provider", secret=True)
OIDC_ROLES = Variable("WEIR_OIDC_ROLES", 'roles by group: ops=operator "Domain Admins"=administrator')
OIDC_GROUPS = Variable("WEIR_OIDC_GROUPS", "claim that lists a user's groups", "groups")
OIDC_SCOPES = Variable("WEIR_OIDC_SCOPES", "requested scopes", "openid profile email")

# Messages.
PUBLIC_URL = Variable(
    "WEIR_PUBLIC_URL",
    "public URL of the console, used in messages",
    "http://localhost:8000",
    unset="http://localhost:8000; with ./run, its address",
)
CONSOLE_URL = Address(
    "WEIR_CONSOLE_URL",
    "URL at which the observer checks the console (totals.console_available): http://web:8000",
    unset="none: not checked; with ./run, its console",
)
SMTP_URL = Variable(
    "WEIR_SMTP_URL",
    "mail server: smtp://user:password@host:587 (smtps: implicit TLS)",
    unset="none: no email",
    secret=True,
)
ALIVE_URL = Variable(
    "WEIR_ALIVE_URL",
    "dead man's switch: URL that Weir requests while the observer, the alerter, and delivery work",
    unset="none: no requests",
    secret=True,
)
ALIVE_SECONDS = Seconds("WEIR_ALIVE_SECONDS", "interval between requests of WEIR_ALIVE_URL, s", "60")
MAIL_FROM = Variable("WEIR_MAIL_FROM", "sender address of email messages", "weir@localhost")
LOG_LEVEL = OneOf(
    "WEIR_LOG_LEVEL",
    "minimum log level: DEBUG, INFO, WARNING, or ERROR",
    "INFO",
    words_known=("DEBUG", "INFO", "WARNING", "ERROR"),
)
LOG_FORMAT = OneOf(
    "WEIR_LOG_FORMAT", "log format: text (lines) or `json` (one object per line)", "text", words_known=("text", "json")
)


# Traces and metrics for an OpenTelemetry collector: OpenTelemetry's own names, which its library reads too.
OTLP_ENDPOINT = Address(
    "OTEL_EXPORTER_OTLP_ENDPOINT",
    "collector for traces and metrics (OTLP over HTTP): http://collector:4318",
    unset="none: nothing is sent",
)
OTLP_HEADERS = Variable(
    "OTEL_EXPORTER_OTLP_HEADERS", "headers for the collector: authorization=Bearer%20…,other=…", secret=True
)
OTLP_CERTIFICATE = Variable(
    "OTEL_EXPORTER_OTLP_CERTIFICATE", "CA certificate file for the collector", unset="Python's default CA certificates"
)
OTLP_SERVICE = Variable("OTEL_SERVICE_NAME", "service name at the collector", "weir")
OTLP_RESOURCE = Variable(
    "OTEL_RESOURCE_ATTRIBUTES", "additional attributes of every process: deployment.environment=test,…"
)
OTLP_SAMPLER = Variable(
    "OTEL_TRACES_SAMPLER",
    "trace sampler: parentbased_always_on (all traces) or parentbased_traceidratio (a share)",
    "parentbased_always_on",
)
OTLP_SAMPLER_SHARE = Variable(
    "OTEL_TRACES_SAMPLER_ARG", "share of traces for parentbased_traceidratio, 0 to 1", unset="1"
)

# The pipeline and Spark.
SPARK_MASTER = Variable(
    "SPARK_MASTER",
    "URL of the Spark master: spark://host:7077",
    unset="local[2] for the pipeline, local[1] for batch jobs",
)
SPARK_DRIVER_HOST = Variable(
    "SPARK_DRIVER_HOST",
    "hostname at which a cluster reaches the driver",
    unset="this host's address on the route to the master",
)
SPARK_SECRET = Variable(
    "WEIR_SPARK_SECRET", "for a Spark cluster: authentication secret of its master, workers, and drivers", secret=True
)
SPARK = OneOf(
    "WEIR_SPARK",
    "when the pipeline starts Spark: `on-demand` (when an application needs it; until then, its process executes the"
    " batches) or `always`",
    "on-demand",
    words_known=("on-demand", "always"),
)
PIPELINE_APPLICATION = Folder(
    "WEIR_PIPELINE_APPLICATION", "YAML declaration of the application", unset="the default application"
)
PIPELINE_TRIGGER_SECONDS = Seconds(
    "WEIR_PIPELINE_TRIGGER_SECONDS",
    "minimum time between batch starts, s; a batch starts when events are available",
    "0.1",
)
PIPELINE_PATIENCE_SECONDS = Seconds(
    "WEIR_PIPELINE_PATIENCE_SECONDS", "timeout of a planned batch that waits for an unavailable node, s", "30"
)
PIPELINE_EXECUTION = OneOf(
    "WEIR_PIPELINE_EXECUTION",
    "how the batches of the pipeline are executed: `tasks` (long-running Spark tasks, for low latency) or"
    " `micro-batches` (a Spark micro-batch for each batch)",
    "tasks",
    words_known=("tasks", "micro-batches"),
)
PIPELINE_REPLICA_PROCESSES = WholeNumber(
    "WEIR_PIPELINE_REPLICA_PROCESSES",
    "number of replicas of each application, starting with iap1, that run in a process of their own. Each process has"
    " one core and takes about 700 MB. The other replicas share the process `pipeline`.",
    "0",
)
PIPELINE_STUCK_SECONDS = Seconds(
    "WEIR_PIPELINE_STUCK_SECONDS", "time without progress after which a process that is not blocked exits, s", "120"
)

# Other programs, and other consoles.
PLANT_COMMANDS = Variable(
    "WEIR_PLANT_COMMANDS",
    "allowed commands of declared plants, separated by ;. A call must start with the same words, including"
    " options: /usr/local/bin/scale-pool; /usr/bin/systemctl start worker@",
    unset="none",
)
LEASE_SECONDS = Seconds(
    "WEIR_LEASE_SECONDS",
    "time after which a pause, limit, or hold at an attached system ends if Weir stops renewing it, s (at most 600)."
    " Weir renews it three times in that time",
    "36",
    most=600.0,
)
PLANT_TIMEOUT_SECONDS = Seconds(
    "WEIR_PLANT_TIMEOUT_SECONDS",
    "request timeout for attached plants, s (at most 10). Declared plants: 2 times this to read all"
    " sensors, 4 times this to set an actuator. A measurement is stale after 3 times this.",
    "2",
    most=10.0,
)
PLANT_FILES = Variable(
    "WEIR_PLANT_FILES", "folders whose files declared plants may read, separated by spaces", unset="none"
)
URL = Variable("WEIR_URL", "for manage.py weir: URL of a remote console", unset="this console")
TOKEN = Variable("WEIR_TOKEN", "for manage.py weir: the token for WEIR_URL", secret=True)

DECLARED: tuple[Variable, ...] = tuple(declared for declared in globals().values() if isinstance(declared, Variable))

# Families of variables, each read by a name that a role or a person gives.
PASSWORD_PREFIX = "WEIR_PASSWORD_"  # followed by a role's name
SECRET_PREFIX = "WEIR_SECRET_"  # of handlers, receivers, and plants
# The variables that people may name: Weir's own, except those of the console, since its signing key must never be sent.
SECRET_NAME = re.compile(rf"(?:{SECRET_PREFIX}(?!KEY)[A-Z0-9_]{{1,60}}|WEIR_[A-Z0-9_]{{1,60}}_TOKEN)\Z")
SECRET_HOSTS = "_HOSTS"  # follows the name of a secret: the hosts that it may be used at
PIPELINE_PREFIX = "WEIR_PIPELINE_"
OTLP_PREFIX = "OTEL_"  # of OpenTelemetry's library, which reads more of them than are declared here

# Set by Spark for the processes that it starts.
SPARK_CALLBACK_PORT = "PYTHON_WORKER_FACTORY_PORT"
SPARK_CALLBACK_SECRET = "PYTHON_WORKER_FACTORY_SECRET"
SPARK_CALLBACK_PATH = "PYTHON_WORKER_FACTORY_SOCK_PATH"  # instead of the port and the secret
PYTHONPATH = "PYTHONPATH"


def read_secret(name: str, environment: Mapping[str, str] = PROCESS) -> str:
    """Return the secret under a name that a person has given, or "" if it is unset.

    `egress.check_secret_name` accepts the name. Raises `BadInput` that names it if a byte of it is not UTF-8: it could
    not be sent, and Python's error would quote all of it. A byte order mark, which may come from the file that it was
    read from, is removed.
    """
    secret = environment.get(name, "").removeprefix("\ufeff") if name else ""
    if any("\ud800" <= hidden_name <= "\udfff" for hidden_name in secret):  # how Python represents such a byte
        raise BadInput(name, "must be UTF-8. Set the variable again in UTF-8.")
    return secret


def list_secret_hosts(name: str, environment: Mapping[str, str] = PROCESS) -> frozenset[str]:
    """Return the hosts that a secret may be used at, as its owner has set them in `NAME_HOSTS`.

    Empty if nothing is set: any host.
    """
    text = environment.get(f"{name}{SECRET_HOSTS}", "") if name else ""
    return frozenset(text.replace(",", " ").lower().split())


def iterate_reference_rows() -> Iterator[tuple[str, str, str]]:
    """Return (name, default in words, meaning) of each variable, for the reference."""
    for variable in DECLARED:
        yield variable.name, variable.unset or variable.default or "none", variable.meaning
