"""Agent configs (immutable, content-addressed) and profiles (named pointers to them, with history)."""

from django.db import models
from django.db.models.functions import Lower

from sessions_app.ids import new_id
from sessions_app.models.fields import CreatedAt
from sessions_app.models.project import Project


class AgentConfig(models.Model):
    """One document, known in its project by the SHA-256 of its canonical JSON. A trigger refuses updates."""

    id = models.UUIDField(primary_key=True, default=new_id, editable=False)
    project = models.ForeignKey(Project, models.CASCADE, related_name="configs")
    digest = models.CharField(max_length=64)
    document = models.JSONField()
    created_at = CreatedAt()

    class Meta:
        constraints = [models.UniqueConstraint(fields=["project", "digest"], name="config_digest_unique")]

    def __str__(self) -> str:
        return self.digest[:12]


class AgentProfile(models.Model):
    id = models.UUIDField(primary_key=True, default=new_id, editable=False)
    project = models.ForeignKey(Project, models.CASCADE, related_name="profiles")
    name = models.CharField(max_length=100)
    config = models.ForeignKey(AgentConfig, models.PROTECT, related_name="profiles")
    version = models.PositiveIntegerField(default=1)
    created_at = CreatedAt()
    updated_at = CreatedAt()
    # Sessions and versions go on naming a deleted profile; its name is free again.
    deleted_at = models.DateTimeField(null=True, blank=True)

    class Meta:
        constraints = [
            models.UniqueConstraint(
                "project", Lower("name"), condition=models.Q(deleted_at=None), name="profile_name_unique"
            )
        ]

    def __str__(self) -> str:
        return self.name


class ProfileVersion(models.Model):
    profile = models.ForeignKey(AgentProfile, models.CASCADE, related_name="versions")
    version = models.PositiveIntegerField()
    config = models.ForeignKey(AgentConfig, models.PROTECT, related_name="+")
    actor = models.JSONField()
    created_at = CreatedAt()

    class Meta:
        constraints = [models.UniqueConstraint(fields=["profile", "version"], name="profile_version_unique")]

    def __str__(self) -> str:
        return f"{self.profile_id} v{self.version}"
