"""What agents are made of: configs, profiles, files."""

from django.contrib import admin

from sessions_app.admin.base import ReadOnlyAdmin
from sessions_app.models import AgentConfig, AgentProfile, Artifact, ProfileVersion


@admin.register(AgentConfig)
class AgentConfigAdmin(ReadOnlyAdmin):
    list_display = ["digest", "project", "created_at"]
    list_filter = ["project"]
    list_select_related = ["project"]
    search_fields = ["digest"]


@admin.register(AgentProfile)
class AgentProfileAdmin(ReadOnlyAdmin):
    list_display = ["name", "project", "version", "config", "updated_at", "deleted_at"]
    list_filter = ["project"]
    list_select_related = ["project", "config"]
    search_fields = ["name"]


@admin.register(ProfileVersion)
class ProfileVersionAdmin(ReadOnlyAdmin):
    list_display = ["profile", "version", "config", "created_at"]
    list_select_related = ["profile", "config"]
    search_fields = ["profile__name"]
    ordering = ["-created_at", "-id"]


@admin.register(Artifact)
class ArtifactAdmin(ReadOnlyAdmin):
    list_display = ["name", "project", "media_type", "size", "created_at"]
    list_filter = ["project"]
    list_select_related = ["project"]
    search_fields = ["name", "sha256"]
