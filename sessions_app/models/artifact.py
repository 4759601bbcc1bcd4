"""Files: uploads, images, and the full bytes of cut tool output (S8). The bytes lie in Django's storage."""

from django.db import models

from sessions_app.ids import new_id
from sessions_app.models.fields import CreatedAt
from sessions_app.models.project import Project


class Artifact(models.Model):
    id = models.UUIDField(primary_key=True, default=new_id, editable=False)
    project = models.ForeignKey(Project, models.CASCADE, related_name="artifacts")
    name = models.CharField(max_length=255)
    media_type = models.CharField(max_length=255)
    size = models.BigIntegerField()
    sha256 = models.CharField(max_length=64)
    storage_name = models.CharField(max_length=255)
    created_at = CreatedAt()

    class Meta:
        indexes = [models.Index(fields=["project", "-created_at", "-id"], name="artifact_newest")]

    def __str__(self) -> str:
        return self.name
