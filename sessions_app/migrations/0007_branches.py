from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [
        ("sessions_app", "0006_project_limit"),
    ]

    operations = [
        migrations.AddField(
            model_name="session",
            name="rewound",
            field=models.BooleanField(db_default=False, default=False),
        ),
        migrations.AddIndex(
            model_name="entry",
            index=models.Index(
                condition=models.Q(("kind__in", ["branch_moved", "checkpoint"])),
                fields=["session", "seq"],
                name="entry_landmark",
            ),
        ),
    ]
