"""The app's configuration."""

from django.apps import AppConfig


class TeamsConfig(AppConfig):
    """Models, supervisor and pages."""

    name = "teams"
    default_auto_field = "django.db.models.BigAutoField"
