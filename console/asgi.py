"""The ASGI application: pages and API by Django, `/live/` by the fan-out.

uvicorn console.asgi:application, with console.embedded.processes.WEB_OPTIONS
"""

import gc

# While all pages are imported the garbage collector finds nothing, and takes a fifth of the time.
gc.disable()


from typing import Any, cast  # noqa: E402

from django.core.asgi import get_asgi_application  # noqa: E402

from common import environment as variables  # noqa: E402

variables.PROCESS.setdefault("DJANGO_SETTINGS_MODULE", "console.settings")
# Sessions and forms of a page are signed with the key that all web processes share.
variables.PROCESS.pop(variables.WITHOUT_PAGES.name, None)
pages = get_asgi_application()  # sets Django up, so it precedes imports of models

from channels.routing import ProtocolTypeRouter, URLRouter  # noqa: E402
from channels.sessions import CookieMiddleware  # noqa: E402
from django.conf import settings  # noqa: E402
from django.db import connections  # noqa: E402
from django.urls import get_resolver, path, re_path  # noqa: E402

from console.api.ingestion.body_limit import BodyLimit, load_allowance  # noqa: E402
from console.assistants.endpoint import AssistantEndpoint  # noqa: E402
from console.live.consumer import LiveConsumer, SameOrigin, refuse  # noqa: E402
from console.storage.database_limits import hold_limits  # noqa: E402
from console.web.admission import Admission  # noqa: E402
from console.web.charset import Utf8Only  # noqa: E402
from console.web.lifespan import lifespan  # noqa: E402
from console.web.proxies import TrustedProxies  # noqa: E402
from console.web.to_the_end import ToTheEnd  # noqa: E402

hold_limits(connections["default"].settings_dict, settings.WEIR_DATABASE_LIMITS)
sockets = URLRouter([path("live/", LiveConsumer.as_asgi()), re_path("", cast(Any, refuse))])

routed = ProtocolTypeRouter(
    {
        "http": Utf8Only(BodyLimit(Admission(AssistantEndpoint(ToTheEnd(pages))), allowed=load_allowance)),
        "websocket": SameOrigin(CookieMiddleware(sockets)),
        "lifespan": lifespan,
    }
)
application = TrustedProxies(routed, settings.WEIR_TRUSTED_PROXIES)

# Now, not with the first request: a listening server must answer. On a busy host pages waited 16 s for it.
_ = get_resolver().url_patterns

# Objects that exist now stay: collecting them would delay every request by 0.15 s.
gc.freeze()
gc.enable()
