"""What holds for every test: reproducible properties, and a home of its own."""

import os
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

pytest_plugins = ["harness.fixtures"]

# Shared machines are slow at odd moments; a deadline per example would fail for that alone.
settings.register_profile("default", deadline=None, print_blob=True, suppress_health_check=[HealthCheck.too_slow])
settings.register_profile("long", settings.get_profile("default"), max_examples=5_000)
settings.load_profile("default")

# Whatever the developer's shell says must not reach the tests.
for name in (
    "REACH_ADMIN", "REACH_API_TOKEN", "REACH_URL",
    "http_proxy", "HTTP_PROXY", "https_proxy", "HTTPS_PROXY",
    "all_proxy", "ALL_PROXY", "no_proxy", "NO_PROXY",
):  # fmt: skip
    os.environ.pop(name, None)


@pytest.fixture(autouse=True)
def home(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> Path:
    """State and run files of each test go to a folder of its own, not to the developer's."""
    folder = tmp_path_factory.mktemp("home")
    monkeypatch.setenv("HOME", str(folder))
    monkeypatch.setenv("XDG_STATE_HOME", str(folder / "state"))
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(folder / "run"))
    return folder
