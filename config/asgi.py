"""What daphne serves: HTTP by Django; sockets join here with the feed."""

import os

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "config.settings")

from channels.routing import ProtocolTypeRouter
from django.conf import settings
from django.core.asgi import get_asgi_application

# Requests borrow connections from a pool and give them back. Only here: workers keep one per thread, and
# nothing that forks may have a pool before it does.
settings.DATABASES["default"]["OPTIONS"]["pool"] = {
    "min_size": 1,
    "max_size": settings.TENURE.web_connections,
    "timeout": 10,
}

application = ProtocolTypeRouter({"http": get_asgi_application()})
