"""Rows: transitions, claims, event numbers, the ledger."""

from datetime import timedelta

import pytest
from django.db import IntegrityError, transaction
from django.utils import timezone
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.django import TestCase

from teams.models import Command, Event, Record, Report, Restructuring, Run, Turn
from teams.models.run import LedgerError, book
from teams.models.states import TransitionError


@pytest.fixture
def run(db):
    return Run.objects.create(task="a_task", strategy=Run.Strategy.EVOLVING)


@pytest.mark.parametrize("model", [Run, Command, Turn, Report, Restructuring, Record])
def test_every_state_has_its_transitions_and_leads_to_states_that_exist(model):
    states = {choice.value for choice in model.State}
    assert set(model.TRANSITIONS) == states
    assert all(following <= states for following in model.TRANSITIONS.values())


def test_a_transition_that_the_table_lacks_is_an_error(run):
    with pytest.raises(TransitionError, match="cannot go from queued to paused"):
        run.move(Run.State.PAUSED)


def test_of_two_who_make_the_same_transition_one_gets_true(run):
    other = Run.objects.get(pk=run.pk)
    assert run.move(Run.State.RUNNING, state_reason="mine")
    assert not other.move(Run.State.RUNNING, state_reason="theirs")
    run.refresh_from_db()
    assert run.state_reason == "mine"


def test_a_lease_belongs_to_one_supervisor_until_it_runs_out(run):
    assert run.claim("first")
    assert not Run.objects.get(pk=run.pk).claim("second")
    assert run.claim("first")
    Run.objects.filter(pk=run.pk).update(lease_until=timezone.now() - timedelta(seconds=1))
    assert Run.objects.get(pk=run.pk).claim("second")
    assert not run.claim("first")


def test_a_run_that_has_ended_is_nobodys_to_claim(run):
    run.move(Run.State.RUNNING)
    run.move(Run.State.DONE)
    assert not run.claim("first")
    assert list(Run.objects.open()) == []


def test_events_are_numbered_from_1_without_gaps_even_when_a_transaction_fails(run):
    run.record("begun", seed=1)
    with pytest.raises(ZeroDivisionError), transaction.atomic():
        run.record("never told")
        1 / 0  # noqa: B018
    Run.objects.get(pk=run.pk).record("went on")
    assert list(Event.objects.values_list("number", "kind")) == [(1, "begun"), (2, "went on")]


def test_one_key_is_one_command(run):
    Command.objects.create(run=run, key="k", kind="pause", actor="a person")
    with pytest.raises(IntegrityError):
        Command.objects.create(run=run, key="k", kind="pause", actor="a person")


def test_nothing_is_spent_that_is_not_there(run):
    book(run, "grant", "candidates", 2)
    book(run, "reserve", "candidates", 2)
    with pytest.raises(LedgerError, match=r"cannot reserve 1 candidates of run \d+: there are 0"):
        book(run, "reserve", "candidates", 1)
    with pytest.raises(LedgerError, match="cannot spend 3 candidates"):
        book(run, "spend", "candidates", 3)
    for amount in (0, -1, float("nan"), float("inf")):
        with pytest.raises(LedgerError, match="must be a positive number"):
            book(run, "grant", "candidates", amount)


bookings = st.lists(
    st.tuples(st.sampled_from(["grant", "top_up", "reserve", "spend", "refund"]), st.integers(1, 9)), max_size=25
)


class TestLedger(TestCase):
    """Any sequence of bookings: refused whole, or the sums stay sound."""

    @given(bookings)
    @settings(max_examples=40)
    def test_the_ledger_always_sums_and_never_goes_below_zero(self, wanted):
        run = Run.objects.create(task="a_task", strategy=Run.Strategy.FIXED)
        for kind, amount in wanted:
            before = run.ledger.count()
            try:
                book(run, kind, "candidates", amount)
            except LedgerError:
                assert run.ledger.count() == before
            granted = run.ledger.total("candidates", "grant", "top_up")
            parts = [f("candidates") for f in (run.ledger.available, run.ledger.outstanding, run.ledger.spent)]
            assert min(parts) >= 0
            assert granted == pytest.approx(sum(parts))
