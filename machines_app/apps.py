from uuid import UUID

from django.apps import AppConfig


def _names(project: UUID) -> set[str]:
    from machines_app.models import Machine

    return set(Machine.objects.filter(project_id=project).values_list("name", flat=True))


class MachinesAppConfig(AppConfig):
    name = "machines_app"
    verbose_name = "Machines"

    def ready(self) -> None:
        """Offer the tools of `machines_app.tools`, as soon as the app has any, and connect machines with sessions."""
        from machines_app.bindings import release_all
        from sessions_app.configs import register_machine_names
        from sessions_app.control import register_release
        from tools_app.registry import register_app_tools

        register_app_tools(self.name)
        register_machine_names(_names)
        register_release(release_all)
