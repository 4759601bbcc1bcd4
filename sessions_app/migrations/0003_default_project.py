"""A project `default` exists from the start."""

from django.db import migrations


def create_default(apps, schema_editor):
    apps.get_model("sessions_app", "Project").objects.get_or_create(name="default")


class Migration(migrations.Migration):
    dependencies = [("sessions_app", "0002_guards")]
    operations = [migrations.RunPython(create_default, migrations.RunPython.noop)]
