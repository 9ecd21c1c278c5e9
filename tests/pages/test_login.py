"""Nobody sees anything without a link; a link lets one in once; every page has its content security policy."""

import re
import threading
from datetime import timedelta

import pytest
from django.contrib.auth.models import User
from django.test import Client
from django.urls import URLPattern, get_resolver
from django.utils import timezone

from teams.models import LoginLink
from teams.models.login import OWNER

OPEN = {"login", "login_link"}


@pytest.fixture
def link(db):
    return f"/login/{LoginLink.make()}"


@pytest.fixture
def logged_in(client, link):
    assert client.post(link).status_code == 302
    return client


def addresses():
    """Every address there is, with 1 for each number."""
    for pattern in get_resolver().url_patterns:
        assert isinstance(pattern, URLPattern)
        if pattern.name not in OPEN:
            yield "/" + re.sub(r"<int:\w+>", "1", str(pattern.pattern))


@pytest.mark.parametrize("address", list(addresses()))
@pytest.mark.parametrize("method", ["get", "post"])
def test_no_page_without_login(client, db, address, method):
    response = getattr(client, method)(address)
    assert response.status_code == 302
    assert response["Location"].startswith("/login/")


def test_whoever_is_sent_to_the_login_learns_how_to_get_a_link(client, db):
    response = client.get("/", follow=True)
    assert response.status_code == 200
    assert "manage.py login_link --port 80" in response.content.decode()


def test_a_link_lets_one_in_once(client, link):
    assert client.get(link).status_code == 200
    assert client.head(link).status_code == 200
    response = client.post(link)
    assert (response.status_code, response["Location"]) == (302, "/")
    assert client.get("/").status_code == 200
    user = User.objects.get()
    assert (user.username, user.has_usable_password()) == (OWNER, False)
    for method in ("get", "post"):
        refused = getattr(Client(), method)(link)
        assert refused.status_code == 410
        assert "has been used" in refused.content.decode()
        assert "manage.py login_link" in refused.content.decode()


def test_who_is_logged_in_uses_up_no_link(logged_in, db):
    fresh = f"/login/{LoginLink.make()}"
    assert logged_in.get(fresh)["Location"] == "/"
    assert Client().post(fresh).status_code == 302


def test_a_link_that_is_not_known_or_has_expired_is_refused(client, link):
    assert client.post(link + "x").status_code == 403
    LoginLink.objects.update(expires_at=timezone.now() - timedelta(seconds=1))
    response = client.get(link)
    assert response.status_code == 410
    assert "has expired" in response.content.decode()
    assert client.post(link).status_code == 410


def test_the_database_holds_no_token(link):
    token = link.rpartition("/")[2]
    assert token not in str(list(LoginLink.objects.values()))


@pytest.mark.django_db(transaction=True)
def test_of_two_who_use_a_link_at_the_same_time_one_gets_in():
    from django.db import connection

    link = f"/login/{LoginLink.make()}"
    together, statuses = threading.Barrier(8), []

    def use():
        together.wait()
        statuses.append(Client().post(link).status_code)
        connection.close()

    threads = [threading.Thread(target=use) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(statuses) == [302] + 7 * [410]


def test_a_form_from_elsewhere_is_refused(link):
    assert Client(enforce_csrf_checks=True).post(link).status_code == 403


def test_logging_out_ends_the_session(logged_in):
    assert logged_in.get("/logout/").status_code == 405
    assert logged_in.post("/logout/").status_code == 302
    assert logged_in.get("/").status_code == 302


def test_every_page_has_its_policy_with_a_nonce_of_its_own(logged_in, db):
    from teams.launch import new_run

    new_run("mla_paged_decode", candidates=1)
    seen = set()
    for address in ("/", "/runs/new", "/runs/1/"):
        response = logged_in.get(address)
        policy = response["Content-Security-Policy"]
        (nonce,) = set(re.findall(r"'nonce-([^']+)'", policy))
        assert f'nonce="{nonce}"' in response.content.decode()
        assert "unsafe" not in policy
        for directive in ("default-src 'self'", "frame-ancestors 'none'", "object-src 'none'", "base-uri 'none'"):
            assert directive in policy
        assert response["X-Content-Type-Options"] == "nosniff"
        assert response["Referrer-Policy"] == "same-origin"
        seen.add(nonce)
    assert len(seen) == 3


def test_the_page_says_that_the_judge_is_being_prepared(logged_in, settings, tmp_path):
    from teams import preparing

    settings.HOME = tmp_path
    preparing._begin("cpu")
    assert "Preparing the judge" in logged_in.get("/").content.decode()
    preparing._clear()
    assert "Preparing the judge" not in logged_in.get("/").content.decode()
