"""Tenants, and what belongs to them as a whole: keys and secrets."""

from django.db import models

from sessions_app.ids import new_id
from sessions_app.models.fields import CreatedAt


class Project(models.Model):
    """Owns everything; another project's object is a 404 everywhere."""

    id = models.UUIDField(primary_key=True, default=new_id, editable=False)
    name = models.CharField(max_length=100, unique=True)
    created_at = CreatedAt()
    # Sessions that may run at once; 0 for any number, null for what TENURE_PROJECT_MAX_RUNNING says.
    max_running = models.PositiveIntegerField(null=True, blank=True)
    # Grows with every claim under a limit: whoever counted the running ones before can tell that it is stale.
    claims = models.BigIntegerField(default=0, db_default=0, editable=False)

    def __str__(self) -> str:
        return self.name


class KeyRole(models.TextChoices):
    MEMBER = "member"  # everything a product needs
    ADMIN = "admin"  # and the project's own keys and audit


class ApiKey(models.Model):
    """A bearer key. Only its SHA-256 is stored; `prefix` is the part that people may see."""

    id = models.UUIDField(primary_key=True, default=new_id, editable=False)
    project = models.ForeignKey(Project, models.CASCADE, related_name="api_keys")
    name = models.CharField(max_length=100)
    role = models.CharField(max_length=10, choices=KeyRole, default=KeyRole.MEMBER)
    prefix = models.CharField(max_length=16)
    digest = models.CharField(max_length=64, unique=True)
    created_at = CreatedAt()
    expires_at = models.DateTimeField(null=True, blank=True)
    revoked_at = models.DateTimeField(null=True, blank=True)

    def __str__(self) -> str:
        return f"{self.name} ({self.prefix}…)"


class Secret(models.Model):
    """A named value encrypted with the key ring (`TENURE_SECRET_KEYS`); never returned by the API."""

    id = models.UUIDField(primary_key=True, default=new_id, editable=False)
    project = models.ForeignKey(Project, models.CASCADE, related_name="secrets")
    name = models.CharField(max_length=100)
    ciphertext = models.TextField()
    created_at = CreatedAt()
    updated_at = CreatedAt()

    class Meta:
        constraints = [models.UniqueConstraint(fields=["project", "name"], name="secret_name_unique")]

    def __str__(self) -> str:
        return self.name
