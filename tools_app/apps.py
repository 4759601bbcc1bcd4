from django.apps import AppConfig


class ToolsAppConfig(AppConfig):
    name = "tools_app"
    verbose_name = "Tools"

    def ready(self) -> None:
        """Offer the tools of this deployment, and give the engine the runtime it reaches them through."""
        from django.conf import settings

        from sessions_app import configs, tool_port
        from tools_app import registry, skills
        from tools_app.console import places
        from tools_app.runtime import Runtime

        registry.register_module("tools_app.human")
        registry.register_module("tools_app.internal")
        registry.register_module("tools_app.skill_tools")
        registry.register_module("tools_app.subagents")
        registry.register_module("tools_app.outside.tools")
        if settings.TENURE.dev_tools or settings.TENURE.debug:
            registry.register_module("tools_app.development")
        registry.register_configured_modules()
        configs.register_skills(skills.known)
        tool_port.register(Runtime())
        places.register()
