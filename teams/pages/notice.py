"""What every page says while the judge is being prepared, or cannot be."""

from __future__ import annotations

import zlib
from collections.abc import Mapping

from django.http import HttpRequest
from django.template.loader import render_to_string
from django.utils.safestring import SafeString, mark_safe

from teams import preparing


def notice(*, out_of_band: bool = False) -> SafeString:
    """The element; empty where the judge is ready."""
    context = {"preparing": preparing.state(), "out_of_band": out_of_band}
    return mark_safe(render_to_string("run/notice.html", context))  # noqa: S308 (the template escapes)


def notice_version() -> str:
    """Changes when the notice does."""
    state = preparing.state()
    return f"{zlib.crc32(f'{state.text}{state.failed}{state.last_line}'.encode()):x}" if state else "ready"


def context(request: HttpRequest) -> Mapping[str, SafeString]:
    """For every template: `notice`."""
    return {"notice": notice()}
