"""The printed link, in a browser: it logs in by itself, once."""

import pytest


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_the_printed_link_logs_in_by_itself_once(context, server, problems):
    tab = context.new_page()
    tab.goto(server.login_link)
    tab.wait_for_url(server.url + "/")
    tab.reload()
    assert tab.url == server.url + "/"
    assert problems == []
    context.clear_cookies()
    assert tab.goto(server.login_link).status == 410
    assert "has been used" in tab.inner_text("h1")
    tab.goto("/runs/new")
    assert "/login/?next=" in tab.url


def test_a_preview_uses_nothing_up(context, server, problems):
    for method in ("GET", "HEAD"):
        assert server.get("/login/" + server.login_link.rpartition("/")[2], Purpose="prefetch")[0] == 200, method
    tab = context.new_page()
    tab.goto(server.login_link)
    tab.wait_for_url(server.url + "/")
    assert problems == []


@pytest.mark.parametrize("arguments", [[]])
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_a_run_with_its_figure_keeps_to_the_policy(page):
    page.goto("/runs/1/")
    page.wait_for_selector(".js-plotly-plot .main-svg")
    page.hover(".js-plotly-plot .nsewdrag")
    page.wait_for_selector(".modebar-btn", state="attached")
    assert page.title()
