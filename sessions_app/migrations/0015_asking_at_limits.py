from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [
        ("sessions_app", "0014_usage"),
    ]

    operations = [
        migrations.AddField(
            model_name="session",
            name="limit_ask",
            field=models.JSONField(blank=True, null=True),
        ),
        migrations.AddField(
            model_name="session",
            name="limit_grants",
            field=models.JSONField(blank=True, null=True),
        ),
        migrations.AddField(
            model_name="treebudget",
            name="granted",
            field=models.JSONField(blank=True, db_default={}, default=dict),
        ),
    ]
