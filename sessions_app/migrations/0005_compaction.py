import django.db.models.deletion
from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [("sessions_app", "0004_sweeper_indexes")]

    operations = [
        migrations.AddField(
            model_name="session",
            name="compact_requested",
            field=models.BooleanField(db_default=False, default=False),
        ),
        migrations.AddField(
            model_name="modelcall",
            name="purpose",
            field=models.CharField(
                choices=[("reply", "Reply"), ("compaction", "Compaction")],
                db_default="reply",
                default="reply",
                max_length=10,
            ),
        ),
        migrations.AlterField(
            model_name="modelcall",
            name="turn",
            field=models.ForeignKey(
                db_constraint=False,
                db_index=False,
                null=True,
                on_delete=django.db.models.deletion.CASCADE,
                related_name="calls",
                to="sessions_app.turn",
            ),
        ),
    ]
