"""Skills in the admin: every version with its text, to read. They are written over the API or by agents."""

from django.contrib import admin

from sessions_app.admin import ReadOnlyAdmin
from tools_app.models import Skill, SkillVersion


@admin.register(Skill)
class SkillAdmin(ReadOnlyAdmin):
    list_display = ["name", "project", "version", "deleted_at"]
    list_filter = ["project"]
    list_select_related = ["project"]
    search_fields = ["name"]


@admin.register(SkillVersion)
class SkillVersionAdmin(ReadOnlyAdmin):
    list_display = ["skill", "version", "description", "project", "is_newest", "created_at"]
    list_select_related = ["skill__project"]
    search_fields = ["skill__name"]
    ordering = ["-created_at", "-id"]

    @admin.display(ordering="skill__project")
    def project(self, row: SkillVersion) -> str:
        return str(row.skill.project)

    @admin.display(boolean=True)
    def is_newest(self, row: SkillVersion) -> bool:
        """Of a skill that is not deleted."""
        return row.skill.deleted_at is None and row.version == row.skill.version
