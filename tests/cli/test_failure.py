import click
import pytest

from reach_cli.failure import Failed


def test_a_failure_is_one_sentence_on_stderr(capsys: pytest.CaptureFixture[str]) -> None:
    failure = Failed("The sidecar does not answer. Start one.")
    failure.show()
    assert capsys.readouterr() == ("", "reach: The sidecar does not answer. Start one.\n")
    assert failure.exit_code == 1
    assert isinstance(failure, click.ClickException)
