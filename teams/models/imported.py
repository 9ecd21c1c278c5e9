"""Imports: where a run comes from whose report was measured elsewhere."""

from __future__ import annotations

from django.db import models

from teams.models.run import Run


class Import(models.Model):
    """The file behind an imported run, which itself lies in the workspace. One file, by its hash, is imported once."""

    run = models.OneToOneField(Run, on_delete=models.CASCADE, related_name="origin")
    name = models.CharField(max_length=200, help_text="what people call it")
    file_name = models.CharField(max_length=255)
    sha256 = models.CharField(max_length=64, unique=True)
    actor = models.CharField(max_length=150)
    report = models.JSONField(help_text="what the file says besides its rows")
    created_at = models.DateTimeField(auto_now_add=True)

    def __str__(self) -> str:
        return f"{self.file_name}, imported by {self.actor} on {self.created_at:%-d %B %Y}"
