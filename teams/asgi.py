"""The application for an ASGI server and for workers: pages over HTTP, the supervisor on its channel."""

import os

from django.core.asgi import get_asgi_application

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "teams.settings")
http = get_asgi_application()

from channels.routing import ChannelNameRouter, ProtocolTypeRouter  # noqa: E402

from teams.supervisor.consumer import CHANNEL, SupervisorConsumer  # noqa: E402

application = ProtocolTypeRouter({"http": http, "channel": ChannelNameRouter({CHANNEL: SupervisorConsumer.as_asgi()})})
