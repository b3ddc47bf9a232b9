"""Django settings. What differs between machines comes from the environment: `common.environment`."""

import hmac
import ipaddress
import os
import secrets
from collections.abc import Callable
from typing import TypeVar
from urllib.parse import unquote, urlsplit

from django.core.exceptions import ImproperlyConfigured

from common import environment as variables
from common import logs
from common.errors import BadInput
from common.files import keep_private, load_or_create_secret
from common.own_process import raise_open_file_limit
from console import release
from console.accounts import identity_settings
from console.connections import broker
from console.connections.client_addresses import parse_networks
from console.embedded.local import EmbeddedServers
from console.storage import database_address
from queues import keys

_T = TypeVar("_T")
MAX_TICK_PROCESSES = 4  # unless WEIR_TICK_PROCESSES asks for more

# Every process that reads the settings may write to WEIR_DATA: web, workers, beat, and every command.
keep_private()
raise_open_file_limit()

BASE_DIR = release.ROOT
WEIR_DATA = release.get_data_folder()
# A command next to a running ./run finds that plant by its data folder.
REDIS_URL = variables.REDIS_URL.get_text() or EmbeddedServers(WEIR_DATA).control_url() or variables.LOCAL_CONTROL


def _read(read: Callable[[], _T]) -> _T:
    """Call `read`. Raises `ImproperlyConfigured` that names the variable."""
    try:
        return read()
    except BadInput as error:
        raise ImproperlyConfigured(f"{error.field} {error.message}") from None


# Other words than 1 or 0 are rejected: with `true` a console must not run without production's checks.
WEIR_PRODUCTION = _read(variables.PRODUCTION.is_on)


def _load_secret_key() -> str:
    """Return the signing key: from the environment, or (outside production) one kept in the data folder."""
    if key := variables.SECRET_KEY.get_text():
        if WEIR_PRODUCTION and (len(key) < 50 or len(set(key)) < 5):
            raise ImproperlyConfigured("WEIR_SECRET_KEY is too weak. Set it to 50 or more random characters.")
        return key
    if WEIR_PRODUCTION and _read(variables.WITHOUT_PAGES.is_on):
        # Signs nothing that another process reads; a worker can't disclose a key that it does not have.
        return secrets.token_urlsafe(48)
    if WEIR_PRODUCTION:
        raise ImproperlyConfigured("WEIR_SECRET_KEY is missing. Set it to 50 or more random characters.")
    return load_or_create_secret(WEIR_DATA / "secret-key", secrets.token_urlsafe(48))


SECRET_KEY = _load_secret_key()
# A separate key for each use. A former signing key stays in WEIR_AUDIT_KEY, for verification.
WEIR_AUDIT_KEYS = [
    hmac.digest(word.encode(), b"weir audit chain", "sha256")
    for word in variables.AUDIT_KEY.get_words() or [SECRET_KEY]
]
DEBUG = False
_HOSTS = variables.HOSTS.get_words()
# The health check of Compose queries the web process beside it.
ALLOWED_HOSTS = [*_HOSTS, "127.0.0.1"] if WEIR_PRODUCTION else _HOSTS
try:
    WEIR_TRUSTED_PROXIES = parse_networks(variables.TRUSTED_PROXIES.get_text())
except ValueError as error:
    raise ImproperlyConfigured(f"WEIR_TRUSTED_PROXIES must be networks such as 10.0.3.0/24: {error}") from None
CSRF_TRUSTED_ORIGINS = [f"https://{host}" for host in _HOSTS] if WEIR_PRODUCTION else []

INSTALLED_APPS = [
    "django.contrib.auth",
    "django.contrib.contenttypes",
    "django.contrib.sessions",
    "django.contrib.messages",
    "django.contrib.staticfiles",
    "django_celery_beat",
    "axes",
    "django_otp",
    "django_otp.plugins.otp_totp",
    "channels",
    "queues",
    "workers",
    "console",
    "console.upkeep",
]

MIDDLEWARE = [
    "django.middleware.security.SecurityMiddleware",
    "whitenoise.middleware.WhiteNoiseMiddleware",
    # After the static files, which are stored compressed. It pads compressed answers, so a length reveals no secret.
    "console.web.compression.OneMember",
    "console.web.head.HeadOfTheApi",
    "console.web.response_headers.ResponseHeaders",
    "console.web.request_id.RequestId",
    "console.web.traced.build_middleware",
    "console.web.problem.Problems",
    "console.audit.refusals.refusals_recorded",
    "console.input.boundary.Boundary",
    "django.contrib.sessions.middleware.SessionMiddleware",
    "django.middleware.common.CommonMiddleware",
    "django.middleware.csrf.CsrfViewMiddleware",
    "django.contrib.auth.middleware.AuthenticationMiddleware",
    "console.accounts.login.LoginRequired",
    "console.accounts.sessions.SeenSessions",
    "console.accounts.submissions.IdempotencyGuard",
    "django.contrib.messages.middleware.MessageMiddleware",
    "django.middleware.clickjacking.XFrameOptionsMiddleware",
    "axes.middleware.AxesMiddleware",
]

ROOT_URLCONF = "console.urls"
ASGI_APPLICATION = "console.asgi.application"
TEMPLATES = [
    {
        "BACKEND": "django.template.backends.django.DjangoTemplates",
        "DIRS": [BASE_DIR / "templates"],
        "OPTIONS": {
            "context_processors": [
                "django.template.context_processors.request",
                "django.contrib.auth.context_processors.auth",
                "django.contrib.messages.context_processors.messages",
                "console.pages.frame.frame.frame",
            ],
            "builtins": ["console.templatetags.filters", "console.templatetags.live", "console.templatetags.listing"],
        },
    }
]

# A power loss may undo what a loop's tick wrote in the last seconds, but not what people did, which is
# written to the disk with its audit entry (`console.audit.chain`).
_SQLITE = {
    "transaction_mode": "IMMEDIATE",
    "timeout": 20,
    "init_command": "PRAGMA journal_mode=WAL;PRAGMA synchronous=NORMAL",
}
_DATABASE_URL = variables.DATABASE_URL.get_text() or database_address.build_file_url(WEIR_DATA / "weir.sqlite3")
DATABASES = {"default": _read(lambda: database_address.parse_database_url(_DATABASE_URL))}
if DATABASES["default"]["ENGINE"].endswith("sqlite3"):
    DATABASES["default"]["OPTIONS"] = _SQLITE
# Time limits of PostgreSQL for processes that run permanently (`console.storage.database_limits`), s.
WEIR_DATABASE_LIMITS = {
    "statement_timeout": _read(variables.STATEMENT_SECONDS.get_whole_number),
    "lock_timeout": _read(variables.LOCK_SECONDS.get_whole_number),
    "idle_in_transaction_session_timeout": _read(variables.TRANSACTION_SECONDS.get_whole_number),
}
DEFAULT_AUTO_FIELD = "django.db.models.BigAutoField"


# Celery: strict priorities on Redis (0 is served first), one broker database for all roles.
_BROKER = _read(lambda: broker.build_broker_settings(REDIS_URL))
# Processes in which a control worker ticks its loops (`workers.control.parallel_ticks`).
WEIR_TICK_PROCESSES = _read(
    lambda: variables.TICK_PROCESSES.get_whole_number(min(len(os.sched_getaffinity(0)), MAX_TICK_PROCESSES))
)
WEIR_CELERY_APPLICATION = "console.celery"  # for processes that send tasks and aren't workers
CELERY_BROKER_URL = _BROKER.url
CELERY_BROKER_TRANSPORT = _BROKER.transport
CELERY_RESULT_BACKEND = None
CELERY_TASK_IGNORE_RESULT = True
CELERY_TASK_DEFAULT_QUEUE = "control"
CELERY_TASK_DEFAULT_PRIORITY = 5
CELERY_TASK_ROUTES = {"workers.tasks.consume": {"queue": "jobs"}}
CELERY_WORKER_PREFETCH_MULTIPLIER = 1
CELERY_WORKER_DIRECT = True  # each host also takes work that is sent only to it (workers.pool.selection)
CELERY_DB_REUSE_MAX = 10**9  # tasks on one connection; `console.celery` closes one that does not answer
CELERY_WORKER_HIJACK_ROOT_LOGGER = False
CELERY_WORKER_SEND_TASK_EVENTS = False
CELERY_BROKER_CONNECTION_RETRY_ON_STARTUP = True
CELERY_BROKER_CONNECTION_MAX_RETRIES = None  # each second (workers.coordination.celery_worker)
CELERY_BROKER_TRANSPORT_OPTIONS = {
    "priority_steps": list(range(10)),
    "queue_order_strategy": "priority",
    "sep": ":",
    "global_keyprefix": keys.CELERY,
    "visibility_timeout": 3600,
    **_BROKER.options,
}
CELERY_BEAT_SCHEDULER = "workers.coordination.beat:BeatSchedule"
CELERY_BEAT_MAX_LOOP_INTERVAL = 1.0
CELERY_TIMEZONE = "UTC"

AUTHENTICATION_BACKENDS = [
    "axes.backends.AxesStandaloneBackend",
    "django.contrib.auth.backends.ModelBackend",
    "console.accounts.passkeys.PasskeyBackend",
    "console.accounts.second_factor.RecoveryCodes",
]
PASSWORD_HASHERS = ["django.contrib.auth.hashers.Argon2PasswordHasher"]
AUTH_PASSWORD_VALIDATORS = [
    {"NAME": "django.contrib.auth.password_validation.UserAttributeSimilarityValidator"},
    {"NAME": "django.contrib.auth.password_validation.MinimumLengthValidator", "OPTIONS": {"min_length": 12}},
    {"NAME": "django.contrib.auth.password_validation.CommonPasswordValidator"},
]
CSRF_FAILURE_VIEW = "console.web.problem.answer_forgery"
LOGIN_URL = "login"
try:
    WEIR_OIDC = identity_settings.read(variables.PROCESS)
except ValueError as error:
    raise ImproperlyConfigured(str(error)) from None
# Without WEIR_OIDC it answers nobody.
AUTHENTICATION_BACKENDS.append("console.accounts.identity_provider.Backend")
OIDC_RP_SCOPES = WEIR_OIDC["scopes"] if WEIR_OIDC else "openid"
OIDC_AUTHENTICATION_CALLBACK_URL = "oidc-callback"
OIDC_USE_PKCE = True
OIDC_TIMEOUT = 10
OTP_TOTP_ISSUER = "Weir"
LOGIN_REDIRECT_URL = "overview"
LOGOUT_REDIRECT_URL = "login"
AXES_HANDLER = "console.accounts.lockout.LockoutHandler"  # it has the limits
AXES_FAILURE_LIMIT = 5
AXES_COOLOFF_TIME = 0.25
AXES_LOCKOUT_PARAMETERS = [["username", "ip_address"], "ip_address", "username"]
AXES_RESET_COOL_OFF_ON_FAILURE_DURING_LOCKOUT = False
AXES_USERNAME_CALLABLE = "console.accounts.lockout.normalize_name"
AXES_CLIENT_IP_CALLABLE = "console.accounts.lockout.counted_client"
AXES_LOCKOUT_TEMPLATE = "people/locked_out.html"
AXES_VERBOSE = False
# It stores the fields of a failed login except these and "password": in the password form they would be the
# old password, nearly right, and the new one. A mistyped recovery code is nearly right, too.
AXES_SENSITIVE_PARAMETERS = [
    "username",
    "ip_address",
    "old_password",
    "new_password1",
    "new_password2",
    "code",
    "passkey",
]

LANGUAGE_CODE = "en-gb"
TIME_ZONE = "UTC"
USE_TZ = True
USE_I18N = False

STATIC_URL = "/static/"
STATIC_ROOT = WEIR_DATA / "static"
STATICFILES_DIRS = [BASE_DIR / "static"]
STATICFILES_FINDERS = [
    "django.contrib.staticfiles.finders.FileSystemFinder",
    "django.contrib.staticfiles.finders.AppDirectoriesFinder",
    "console.web.plotly_script.StaticPlotly",
]
# Collected static files are in the data folder, too: Django would set 0644 whatever the umask.
FILE_UPLOAD_PERMISSIONS = 0o600
STORAGES = {
    "default": {"BACKEND": "django.core.files.storage.FileSystemStorage"},
    "staticfiles": {"BACKEND": "console.web.static_files.StaticStorage"},
}

SESSION_ENGINE = "console.storage.session_store"
SESSION_COOKIE_SECURE = CSRF_COOKIE_SECURE = WEIR_PRODUCTION
SESSION_COOKIE_SAMESITE = "Lax"
SECURE_CONTENT_TYPE_NOSNIFF = True
SECURE_REFERRER_POLICY = "same-origin"
X_FRAME_OPTIONS = "DENY"
# A browser that used https once uses only https for a year; http is redirected to https. Health checks on
# this machine use http, and their answers are not secret.
SECURE_HSTS_SECONDS = _read(lambda: variables.HSTS_SECONDS.get_whole_number(365 * 86_400 if WEIR_PRODUCTION else 0))
SECURE_HSTS_INCLUDE_SUBDOMAINS = _read(lambda: variables.HSTS_SUBDOMAINS.is_on(WEIR_PRODUCTION))
SECURE_SSL_REDIRECT = _read(lambda: variables.SSL_REDIRECT.is_on(WEIR_PRODUCTION))
SECURE_REDIRECT_EXEMPT = ["^healthz$", "^readyz$"]
# The browsers' preload list of https hosts takes whole domains, permanently: that is not ours to request. The
# subdomains of our host name are excluded only if an administrator says so.
SILENCED_SYSTEM_CHECKS = ["security.W021"]
if not SECURE_HSTS_INCLUDE_SUBDOMAINS:
    SILENCED_SYSTEM_CHECKS.append("security.W005")
# Static files answer our own pages only; WhiteNoise would permit any site to read them.
WHITENOISE_ALLOW_ALL_ORIGINS = False
# Figures of the plant by /metrics without a token: for a scraper on this machine.
_read(variables.OTLP_ENDPOINT.get_address)  # a malformed one is rejected at the start
WEIR_METRICS_LOOPBACK = _read(lambda: variables.METRICS_LOOPBACK.is_on(not WEIR_PRODUCTION))
WEIR_LIVE_SOCKETS_PER_PERSON = _read(variables.LIVE_SOCKETS_PER_PERSON.get_whole_number)
WEIR_LIVE_SOCKETS = _read(variables.LIVE_SOCKETS.get_whole_number)
WEIR_CONNECTIONS_PER_ADDRESS = _read(variables.CONNECTIONS_PER_ADDRESS.get_whole_number)
WEIR_CONNECTIONS = _read(variables.CONNECTIONS.get_whole_number)

# Addresses that `workers.host.egress` rejects are permitted here, by network, and on no page.
WEIR_EGRESS_ALLOW = variables.EGRESS_ALLOW.get_text()
for _network in WEIR_EGRESS_ALLOW.split():
    try:
        ipaddress.ip_network(_network)
    except ValueError:
        raise ImproperlyConfigured(
            f"WEIR_EGRESS_ALLOW must be networks such as 127.0.0.0/8 10.1.0.0/16, not {_network!r}."
        ) from None

# Mail: the server as one address, so that it can't be configured partly.
WEIR_PUBLIC_URL = variables.PUBLIC_URL.get_text().rstrip("/")
_SMTP = urlsplit(variables.SMTP_URL.get_text())
EMAIL_HOST = _SMTP.hostname or ""
EMAIL_PORT = _SMTP.port or (465 if _SMTP.scheme == "smtps" else 587 if _SMTP.username else 25)
EMAIL_HOST_USER, EMAIL_HOST_PASSWORD = unquote(_SMTP.username or ""), unquote(_SMTP.password or "")
EMAIL_USE_SSL = _SMTP.scheme == "smtps"
# A password is never sent unencrypted.
EMAIL_USE_TLS = bool(_SMTP.username) and not EMAIL_USE_SSL
EMAIL_TIMEOUT = 10
DEFAULT_FROM_EMAIL = variables.MAIL_FROM.get_text()

# The maximum size of a body of events; more is answered with 413 (the API reads the body itself).
WEIR_MAX_BODY_BYTES = 32 * 1024 * 1024
DATA_UPLOAD_MAX_MEMORY_SIZE = WEIR_MAX_BODY_BYTES

LOGGING = logs.build_log_configuration()
