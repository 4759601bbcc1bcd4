from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [("sessions_app", "0012_feed")]

    operations = [
        migrations.AddField(
            model_name="child",
            name="seen",
            field=models.BooleanField(db_default=False, default=False),
        ),
    ]
