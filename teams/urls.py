"""Addresses of the pages."""

from django.urls import URLPattern, URLResolver, path

from teams.pages import export, login, run, runs

urlpatterns: list[URLPattern | URLResolver] = [
    path("", runs.index, name="runs"),
    path("runs/stream", runs.live, name="runs_stream"),
    path("runs/new", runs.create, name="new_run"),
    path("runs/import", runs.import_report, name="import_report"),
    path("runs/<int:number>/", run.page, name="run"),
    path("runs/<int:number>/stream", run.live, name="run_stream"),
    path("runs/<int:number>/command", run.command, name="command"),
    path("runs/<int:number>/speedups.csv", export.speedups, name="speedups"),
    path("login/", login.login, name="login"),
    path("login/<str:token>", login.login_link, name="login_link"),
    path("logout/", login.logout, name="logout"),
]
