from django.apps import AppConfig


class MachinesAppConfig(AppConfig):
    name = "machines_app"
    verbose_name = "Machines"

    def ready(self) -> None:
        """Offer the tools of `machines_app.tools`, as soon as the app has any."""
        from tools_app.registry import register_app_tools

        register_app_tools(self.name)
