"""Every HTTP path. The API's own are in the apps' `api.urls`."""

from django.contrib import admin
from django.urls import URLPattern, URLResolver, include, path
from django.views.generic import RedirectView

from sessions_app.api.health import healthz, readyz

urlpatterns: list[URLPattern | URLResolver] = [
    path("api/v1/", include("sessions_app.api.urls")),
    path("api/v1/", include("tools_app.api.urls")),
    path("healthz", healthz),
    path("readyz", readyz),
    path("admin/", admin.site.urls),
    path("", include("sessions_app.console.urls")),
    path("", include("tools_app.console.urls")),
    path("admin", RedirectView.as_view(pattern_name="admin:index")),
]
