"""Every HTTP path. The API's own are in `sessions_app.api.urls`."""

from django.contrib import admin
from django.urls import URLPattern, URLResolver, include, path

from sessions_app.api.health import healthz, readyz

urlpatterns: list[URLPattern | URLResolver] = [
    path("api/v1/", include("sessions_app.api.urls")),
    path("healthz", healthz),
    path("readyz", readyz),
    path("admin/", admin.site.urls),
]
