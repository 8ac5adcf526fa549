"""The program and its commands."""

import sys

import click

from .. import __version__
from .._nearest import nearest
from ._answer import answered

# The file of each command, which is loaded when it is called, and its line in --help.
_COMMANDS = {
    "train": ("_train", "Train a network on a problem, with crash-safe checkpoints."),
    "resume": ("_train", "Go on with a run that was stopped."),
    "evaluate": ("_inspect", "Measure the field of a run as it is."),
    "report": ("_inspect", "Draw the report of a run again."),
    "predict": ("_predict", "Evaluate the field of a run at points in a file."),
    "compare": ("_inspect", "One table and one picture of several runs."),
    "audit": ("_audit", "Measure the estimators of the gradient on a problem."),
    "list": ("_names", "List problems, methods, rules, estimators and more."),
    "info": ("_inspect", "What a run is, how far it is, and what came out."),
    "completion": ("_names", "Print what completes the commands in a shell."),
}


class Program(click.Group):
    """Loads a command with its file, and knows names that are nearly right."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """In the order of their use."""
        return list(_COMMANDS)

    def get_command(self, ctx: click.Context, name: str) -> click.Command | None:
        """The command of a name."""
        if name not in _COMMANDS:
            return None
        import importlib

        module = importlib.import_module(f".{_COMMANDS[name][0]}", __package__)
        command: click.Command = getattr(module, f"{name}_command")
        return command

    def format_commands(
        self, ctx: click.Context, formatter: click.HelpFormatter
    ) -> None:
        """The commands and their lines, without their files."""
        with formatter.section("Commands"):
            formatter.write_dl([(name, line) for name, (_, line) in _COMMANDS.items()])

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Say which name may have been meant."""
        if args and args[0] not in _COMMANDS and not args[0].startswith("-"):
            raise click.UsageError(
                f"unknown command {args[0]!r}; {nearest(args[0], _COMMANDS)}"
            )
        return super().resolve_command(ctx, args)


@click.group(
    cls=Program,
    context_settings={
        "help_option_names": ["-h", "--help"],
        "show_default": True,
        "max_content_width": 100,
    },
)
@click.version_option(__version__, prog_name="sdifp", message="%(prog)s %(version)s")
def program() -> None:
    """Exact global conservation for neural PDE solvers.

    Begin with `sdifp train kdv`: it trains for about a minute and writes a page to look
    at.
    """


def main(arguments: list[str] | None = None) -> None:
    """Run the program; errors are reported in one sentence, with exit code 2."""
    run = lambda: program.main(arguments, prog_name="sdifp", standalone_mode=False)
    sys.exit(answered(run))
