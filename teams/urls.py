"""Addresses of the pages."""

from django.urls import URLPattern, URLResolver, path

from teams.pages import login

urlpatterns: list[URLPattern | URLResolver] = [
    path("login/", login.login, name="login"),
    path("login/<str:token>", login.login_link, name="login_link"),
    path("logout/", login.logout, name="logout"),
]
