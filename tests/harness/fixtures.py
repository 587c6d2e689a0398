"""Fixtures that start real processes, and the logs of those processes in each failure report."""

from collections.abc import Generator, Iterator

import pytest
from harness.mesh import Mesh


@pytest.fixture
def mesh(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Mesh]:
    """An empty mesh for one test; whatever it started is gone afterwards."""
    mesh = Mesh(tmp_path_factory.mktemp("mesh"))
    yield mesh
    mesh.stop()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[None]
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    report = yield
    if report.failed:
        for value in getattr(item, "funcargs", {}).values():
            mesh = value if isinstance(value, Mesh) else getattr(value, "mesh", None)
            if isinstance(mesh, Mesh):
                report.sections.extend(mesh.report())
    return report
