from django.apps import AppConfig


class SessionsAppConfig(AppConfig):
    name = "sessions_app"
    verbose_name = "Sessions"

    def ready(self) -> None:
        """Register the start-up checks."""
        from sessions_app.hosting import checks  # noqa: F401
