"""Who holds which session: workers (one row per process start) and leases (one row per held session)."""

from django.db import models

from sessions_app.models.fields import CreatedAt
from sessions_app.models.session import Session


class Liveness(models.TextChoices):
    LOCK = "lock"  # a free advisory lock proves the worker's death
    TTL = "ttl"  # behind a pooler the lock proves nothing; only the time to live counts


class Worker(models.Model):
    """One start of one worker process. Its id is also the key of its advisory lock (L6).

    A row marked dead never comes back to life (L5).
    """

    id = models.AutoField(primary_key=True)
    owner = models.CharField(max_length=200, unique=True)
    host = models.CharField(max_length=200)
    pid = models.IntegerField()
    version = models.CharField(max_length=40)
    capacity = models.IntegerField()
    liveness = models.CharField(max_length=4, choices=Liveness, default=Liveness.LOCK)
    started_at = CreatedAt()
    renewed_at = CreatedAt()
    expires_at = models.DateTimeField()
    draining = models.BooleanField(default=False)
    dead = models.BooleanField(default=False)
    # The sweeper's first look at a free lock; a second one proves the death.
    lock_free_at = models.DateTimeField(null=True, blank=True)
    # The session that takes the blame for its death, where it held a suspect (R9).
    suspect = models.UUIDField(null=True, blank=True)
    # It was declared dead, and its process has registered anew: it did not crash.
    came_back = models.BooleanField(default=False, db_default=False)

    class Meta:
        indexes = [
            models.Index(fields=["expires_at"], name="worker_alive", condition=models.Q(dead=False)),
        ]

    def __str__(self) -> str:
        return self.owner


class Lease(models.Model):
    """The right of one attempt to write to one session; lives as long as the row exists (L1, L4)."""

    session = models.OneToOneField(Session, models.CASCADE, primary_key=True, related_name="lease")
    worker = models.ForeignKey(Worker, models.PROTECT, related_name="leases")
    attempt = models.IntegerField()
    acquired_at = CreatedAt()

    def __str__(self) -> str:
        return f"{self.session_id} by {self.worker_id}, attempt {self.attempt}"
