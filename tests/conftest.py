"""Fixtures that several rooms' tests share."""

import pytest
from hypothesis import HealthCheck, settings

# These machines are shared: an example that takes long says nothing of the code.
settings.register_profile("shared machine", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("shared machine")


@pytest.fixture(scope="session")
def bench():
    """One warm judge for all tests that need one; its calibration is kept for the session (see ./test)."""
    from benchmarks.bench import open_bench
    from kernels.task import load_task

    with open_bench(load_task("mla_paged_decode"), "cpu") as ready:
        yield ready
