"""How a verb fails: one clear sentence on stderr that says what to do, and the exit code.

0 is success, 1 something failed, 2 the command line was wrong (click's UsageError), 130 Ctrl-C.
"""

import click


class Failed(click.ClickException):
    """Ends the verb with exit code 1 and `message` on stderr."""

    exit_code = 1

    def show(self, file: object = None) -> None:
        click.echo(f"reach: {self.format_message()}", err=True)


class WrongFlags(Failed):
    """The same for what was written on the command line and is seen only later: exit code 2."""

    exit_code = 2
