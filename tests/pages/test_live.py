"""A person in front of the real thing: two tabs, a run that goes on, buttons that steer it, a server that dies."""

import csv
import io
import re
from pathlib import Path

import pytest

from tests.processes import rows

AXE = (Path(__file__).parent / "vendor" / "axe.min.js").read_text()
REGIONS = ("headline", "controls", "rows", "team", "restructurings", "feed")


def start_run(page, candidates=40):
    page.goto("/runs/new")
    page.get_by_label("Budget: candidates judged").fill(str(candidates))
    page.get_by_role("button", name="Start", exact=True).click()
    page.wait_for_url(re.compile(r"/runs/\d+/$"))


def judged(tab):
    found = re.search(r"(\d+) candidates judged", tab.locator("#headline").inner_text())
    assert found
    return int(found[1])


def wait_judged(tab, count, seconds=120):
    tab.wait_for_function(
        "n => Number(/(\\d+) candidates judged/.exec(document.getElementById('headline').innerText)[1]) >= n",
        arg=count,
        timeout=seconds * 1000,
    )


def wait_text(tab, region, text, seconds=60):
    tab.locator(f"#{region}", has_text=text).wait_for(timeout=seconds * 1000)


def text_of(tab):
    return {name: tab.locator(f"#{name}").text_content() for name in REGIONS}


def test_two_tabs_see_a_run_live_and_either_steers_it(page, context, server, home):
    start_run(page)
    other = context.new_page()
    other.goto(page.url)
    for tab in (page, other):
        tab.evaluate("window.notReloaded = true")
        wait_judged(tab, 3)

    page.get_by_role("button", name="Pause").click()
    for tab in (page, other):
        wait_text(tab, "headline", "paused")
        wait_text(tab, "controls", "Pause by owner: requested → accepted → in force since event")
    at = rows(home, "select last_event from teams_run")[0][0]
    page.wait_for_timeout(1500)
    assert rows(home, "select last_event from teams_run")[0][0] == at, "nothing happens in a run that is paused"
    other.get_by_role("button", name="Resume").click()
    wait_text(page, "headline", "running")
    assert page.get_by_role("button", name="Pause").is_enabled()

    page.get_by_role("button", name="Force restructuring").click()
    page.get_by_label("Why").first.fill("nobody repairs")
    page.locator("#ask-restructure").get_by_role("button", name="Restructure").dblclick()
    wait_text(other, "restructurings", "Team 1 → 2", seconds=180)  # a verification may stand before it
    assert rows(home, "select count(*) from teams_command where kind='restructure'") == [(1,)]
    other.locator("details.card summary").first.click()
    assert "nobody repairs" in other.locator("details.card").first.inner_text()

    other.get_by_role("button", name="Top up").click()
    other.get_by_label("Candidates more").fill("5")
    other.locator("#ask-top_up").get_by_role("button", name="Top up").click()
    wait_text(page, "headline", "of 45")
    assert other.locator("details.card").first.get_attribute("open") is not None, "an open card stays open"

    page.get_by_role("button", name="Stop").click()
    for tab in (page, other):
        tab.locator(".state.done").wait_for(timeout=300_000)  # its best is verified on all workloads first
        wait_text(tab, "headline", "Stopped by owner")
    wait_text(page, "headline", "steered by a person")
    with page.expect_download() as download:
        page.get_by_role("link", name="Speedups as CSV").click()
    lines = list(csv.DictReader(io.StringIO(Path(download.value.path()).read_text())))
    query = "select workload, speedup from teams_workloadresult where report_id=(select best_id from teams_run)"
    assert [(line["workload"], float(line["speedup"])) for line in lines] == rows(home, query + " order by position")
    assert {line["steered"] for line in lines} == {"true"}
    for tab in (page, other):
        assert tab.evaluate("window.notReloaded") is True
    assert text_of(page) == text_of(other)


def test_a_tab_heals_by_itself_when_the_server_dies_and_comes_back(page, context, server, problems):
    start_run(page)
    wait_judged(page, 2)
    page.evaluate("window.notReloaded = true")
    server.kill9()
    page.locator("#connection", has_text="Reconnecting").wait_for()
    before = judged(page)
    server.start_again()
    page.locator("#connection").wait_for(state="hidden", timeout=30_000)
    wait_judged(page, before + 1)
    page.get_by_role("button", name="Pause").click()
    page.locator(".state.paused").wait_for(timeout=60_000)
    wait_text(page, "controls", "in force since event")
    fresh = context.new_page()
    fresh.goto(page.url)
    assert text_of(page) == text_of(fresh)
    assert page.evaluate("window.notReloaded") is True
    lost = ("ERR_CONNECTION", "ERR_INCOMPLETE", "[object Event]")  # the last is what htmx says of a stream that broke
    assert all(any(word in said for word in lost) for said in problems), problems
    problems.clear()


@pytest.mark.slow
def test_sorting_stays_while_rows_are_replaced_and_is_in_the_address(page):
    start_run(page)
    wait_judged(page, 1)
    page.get_by_role("button", name="Tokens").click()
    page.get_by_role("button", name="Tokens").click()
    first = (
        "[...document.querySelectorAll('tbody[data-batch=\"1\"] tr[data-tokens]')].map(r => Number(r.dataset.tokens))"
    )
    assert page.evaluate(first) == sorted(page.evaluate(first), reverse=True)
    seen = judged(page)
    wait_judged(page, seen + 2)
    assert page.evaluate(first) == sorted(page.evaluate(first), reverse=True)
    page.reload()
    assert page.evaluate(first) == sorted(page.evaluate(first), reverse=True)
    page.get_by_role("button", name="Stop").click()
    wait_text(page, "controls", "Stop by owner: requested → accepted")


@pytest.mark.parametrize("scheme", ["light", pytest.param("dark", marks=pytest.mark.slow)])
def test_axe_finds_no_violation_on_any_page(page, scheme):
    start_run(page, candidates=4)
    wait_judged(page, 2)
    here = page.url
    for address in (here, "/", "/runs/new", "/login/"):
        page.goto(address)
        page.evaluate(AXE)
        page.wait_for_timeout(300)
        found = page.evaluate(
            "axe.run().then(r => r.violations.map(v => [v.id, v.nodes.map(n => n.html).slice(0, 3)]))"
        )
        assert found == [], address
