"""Coming in by a link that works once, and going out again."""

from __future__ import annotations

from django.conf import settings
from django.contrib import auth
from django.contrib.auth.decorators import login_not_required
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect, render
from django.views.decorators.cache import never_cache
from django.views.decorators.http import require_http_methods, require_POST, require_safe

from teams.models import LoginLink

BACKEND = "django.contrib.auth.backends.ModelBackend"


@login_not_required
@never_cache
@require_safe
def login(request: HttpRequest) -> HttpResponse:
    """What somebody sees who is not logged in: how to get a link."""
    if request.user.is_authenticated:
        return redirect(settings.LOGIN_REDIRECT_URL)
    return render(request, "login/login.html")


@login_not_required
@never_cache
@require_http_methods(["GET", "HEAD", "POST"])
def login_link(request: HttpRequest, token: str) -> HttpResponse:
    """A login link. Looking at it uses nothing up, so previews and prefetching do no harm; its form, which sends
    itself, does. An unknown link gives 403, one that is used or has expired 410."""
    if request.user.is_authenticated:
        return redirect(settings.LOGIN_REDIRECT_URL)
    link = LoginLink.find(token)
    if link is None:
        return render(request, "login/refused.html", {"why": "is not known here"}, status=403)
    if not link.why_not and request.method != "POST":
        return render(request, "login/link.html")
    user = None if link.why_not else link.use()
    if user is None:
        return render(request, "login/refused.html", {"why": link.why_not}, status=410)
    auth.login(request, user, backend=BACKEND)
    return redirect(settings.LOGIN_REDIRECT_URL)


@never_cache
@require_POST
def logout(request: HttpRequest) -> HttpResponse:
    """End the session."""
    auth.logout(request)
    return redirect("login")
