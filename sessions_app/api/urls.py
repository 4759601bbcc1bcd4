"""Every path of the API. Apps append their own list here."""

from django.urls import URLPattern, URLResolver, path

from sessions_app.api import session_urls
from sessions_app.api.key_views import KeysView, KeyView
from sessions_app.api.me import MeView

urlpatterns: list[URLPattern | URLResolver] = [
    path("me", MeView.as_view()),
    path("api-keys", KeysView.as_view()),
    path("api-keys/<str:key>", KeyView.as_view()),
    *session_urls.urlpatterns,
]
