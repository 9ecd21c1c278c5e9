"""One run: its page, its stream, what people ask of it."""

from __future__ import annotations

import secrets
from collections.abc import Mapping

from django.http import HttpRequest, HttpResponse, StreamingHttpResponse
from django.shortcuts import get_object_or_404, render
from django.utils import timezone
from django.utils.safestring import mark_safe
from django.views.decorators.http import require_GET, require_POST

from kernels.task import BadInputError
from teams.launch import ask
from teams.models import Run
from teams.pages import regions, words
from teams.pages.notice import notice, notice_version
from teams.pages.stream import stream
from teams.supervisor.consumer import wake_supervisor


def version_of(number: int) -> str:
    """What a page of this run shows changes when this does: events, and whether its supervisor is alive."""
    run = Run.objects.get(pk=number)
    return f"{run.last_event}-{words.alive(run, timezone.now())}-{notice_version()}"


def snapshot_of(number: int) -> Mapping[str, str]:
    """All regions of a run as they stand, to take the place of those on a page."""
    run = _whole(number)
    drawn = {name: regions.render(run, name, out_of_band=True) for name in regions.names(run)}
    return {"notice": notice(out_of_band=True), **drawn}


def _whole(number: int) -> Run:
    """The run with what its regions look at."""
    return Run.objects.select_related("team", "best__candidate", "origin").get(pk=number)


@require_GET
def page(request: HttpRequest, number: int) -> HttpResponse:
    """The page of a run."""
    version = version_of(get_object_or_404(Run, pk=number).pk)
    run = _whole(number)
    drawn = {name: mark_safe(regions.render(run, name)) for name in regions.names(run)}  # noqa: S308 (templates escape)
    return render(request, "run.html", {"run": run, "version": version, **drawn})


@require_GET
def live(request: HttpRequest, number: int) -> StreamingHttpResponse:
    """The stream of a run's regions."""
    get_object_or_404(Run, pk=number)
    return stream(request, lambda: version_of(number), lambda: snapshot_of(number))


@require_POST
def command(request: HttpRequest, number: int) -> HttpResponse:
    """Write a command down; the stream shows what becomes of it. The form's key makes a double click one command."""
    run = get_object_or_404(Run, pk=number)
    fields = request.POST
    try:
        payload = {"candidates": _number(fields.get("candidates", ""))} if fields.get("kind") == "top_up" else {}
        ask(
            run,
            fields.get("kind", ""),
            fields.get("key") or secrets.token_hex(8),
            actor=str(request.user),
            note=fields.get("note", ""),
            payload=payload,
        )
    except BadInputError as error:
        return HttpResponse(str(error), status=400, content_type="text/plain; charset=utf-8")
    wake_supervisor()
    return HttpResponse(status=204)


def _number(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        raise BadInputError(f"candidates: {text!r} is not a number") from None
