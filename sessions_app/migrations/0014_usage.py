"""Usage is read by time.

Rows come in about that order, so a BRIN index serves, and a step pays hardly anything for it. It is plain SQL because
Django's class for it would need another app.
"""

from django.db import migrations

MAKE = "CREATE INDEX model_call_time ON sessions_app_modelcall USING brin (started_at)"
UNDO = "DROP INDEX model_call_time"


class Migration(migrations.Migration):
    dependencies = [("sessions_app", "0013_child_seen")]

    operations = [migrations.RunSQL(MAKE, UNDO)]
