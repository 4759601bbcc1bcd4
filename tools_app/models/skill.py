"""Skills: named packages of instructions that an agent loads when it needs them, in versions."""

from django.db import models

from sessions_app.ids import new_id
from sessions_app.models import Project
from sessions_app.models.fields import CreatedAt


class Skill(models.Model):
    """A name, and its newest version. A deleted one keeps its versions and its count: a number means one text."""

    id = models.UUIDField(primary_key=True, default=new_id, editable=False)
    project = models.ForeignKey(Project, models.CASCADE, related_name="skills")
    name = models.CharField(max_length=100)
    version = models.PositiveIntegerField(default=0)
    created_at = CreatedAt()
    updated_at = CreatedAt()
    deleted_at = models.DateTimeField(null=True, blank=True)

    class Meta:
        constraints = [models.UniqueConstraint(fields=["project", "name"], name="skill_name_unique")]

    def __str__(self) -> str:
        return self.name


class SkillVersion(models.Model):
    """One text, for ever: a trigger refuses updates."""

    skill = models.ForeignKey(Skill, models.CASCADE, related_name="versions")
    version = models.PositiveIntegerField()
    description = models.TextField()
    instructions = models.TextField()
    # Who wrote it; and who allowed it, where an agent did.
    created_by = models.JSONField()
    reviewed_by = models.JSONField(null=True, blank=True)
    created_at = CreatedAt()

    class Meta:
        constraints = [models.UniqueConstraint(fields=["skill", "version"], name="skill_version_unique")]

    def __str__(self) -> str:
        return f"{self.skill_id} v{self.version}"
