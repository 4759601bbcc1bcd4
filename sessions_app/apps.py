from django.apps import AppConfig


class SessionsAppConfig(AppConfig):
    name = "sessions_app"
    verbose_name = "Sessions"

    def ready(self) -> None:
        """Register the start-up checks, and the console's own pages."""
        from sessions_app.console import places
        from sessions_app.hosting import checks  # noqa: F401

        places.register()
