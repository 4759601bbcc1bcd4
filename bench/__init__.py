"""What is measured, and next to what. `manage.py bench <name>` runs one of these."""
