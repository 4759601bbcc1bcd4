"""Every path of the API. Apps append their own list here."""

from django.urls import URLPattern, URLResolver, path

from sessions_app.api import session_urls
from sessions_app.api.artifact_views import ArtifactContentView, ArtifactsView, ArtifactView
from sessions_app.api.config_views import ConfigsView, ConfigView
from sessions_app.api.key_views import KeysView, KeyView
from sessions_app.api.me import MeView
from sessions_app.api.model_views import ModelsView
from sessions_app.api.profile_views import ProfileConfigView, ProfilesView, ProfileVersionsView, ProfileView
from sessions_app.api.schema_view import SchemaView
from sessions_app.api.secret_views import SecretsView, SecretView
from sessions_app.api.usage_view import UsageView

urlpatterns: list[URLPattern | URLResolver] = [
    path("me", MeView.as_view()),
    path("api-keys", KeysView.as_view()),
    path("api-keys/<str:key>", KeyView.as_view()),
    path("configs", ConfigsView.as_view()),
    path("configs/<str:config>", ConfigView.as_view()),
    path("profiles", ProfilesView.as_view()),
    path("profiles/<str:profile>", ProfileView.as_view()),
    path("profiles/<str:profile>/config", ProfileConfigView.as_view()),
    path("profiles/<str:profile>/versions", ProfileVersionsView.as_view()),
    path("artifacts", ArtifactsView.as_view()),
    path("artifacts/<str:artifact>", ArtifactView.as_view()),
    path("artifacts/<str:artifact>/content", ArtifactContentView.as_view()),
    path("secrets", SecretsView.as_view()),
    path("secrets/<str:name>", SecretView.as_view()),
    path("models", ModelsView.as_view()),
    path("usage", UsageView.as_view()),
    path("schema", SchemaView.as_view()),
    *session_urls.urlpatterns,
]
