"""Links by which a person comes in: each works once."""

from __future__ import annotations

import hashlib
import secrets
from datetime import timedelta

from django.contrib.auth.models import User
from django.db import models
from django.utils import timezone

VALID = timedelta(hours=24)
OWNER = "owner"
"""The only user: whoever can start Regroup on this machine. There is no password."""


class LoginLink(models.Model):
    """A link is known by the hash of its token alone, so that the database lets nobody in."""

    token_sha256 = models.CharField(max_length=64, unique=True)
    expires_at = models.DateTimeField()
    used_at = models.DateTimeField(null=True, blank=True)

    @classmethod
    def make(cls) -> str:
        """The token of a new link; links that are past forget themselves on this occasion."""
        cls.objects.filter(expires_at__lt=timezone.now() - VALID).delete()
        token = secrets.token_urlsafe(32)
        cls.objects.create(token_sha256=_hash(token), expires_at=timezone.now() + VALID)
        return token

    @classmethod
    def find(cls, token: str) -> LoginLink | None:
        """The link with this token, whatever has become of it."""
        return cls.objects.filter(token_sha256=_hash(token)).first()

    @property
    def why_not(self) -> str:
        """Why it does not work, in words; empty if it does."""
        if self.used_at is not None:
            return "has been used"
        return "has expired" if self.expires_at <= timezone.now() else ""

    def use(self) -> User | None:
        """Use it up: the user to log in, or None if somebody was faster or it has expired."""
        fresh = LoginLink.objects.filter(pk=self.pk, used_at=None, expires_at__gt=timezone.now())
        if not fresh.update(used_at=timezone.now()):
            self.refresh_from_db()
            return None
        return owner()


def owner() -> User:
    """The one local user, made when first wanted."""
    user, created = User.objects.get_or_create(username=OWNER)
    if created:
        user.set_unusable_password()
        user.save()
    return user


def _hash(token: str) -> str:
    return hashlib.sha256(token.encode()).hexdigest()
