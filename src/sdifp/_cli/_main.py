"""The program and its commands."""

import importlib
import os
import sys

import click

from .. import __version__
from .._nearest import nearest
from ._options import json_option, print_json
from ._output import answered, say

# The file of each command, which is loaded when it is called, and its line in --help.
_COMMANDS = {
    "train": ("_train", "Train a network on a problem, with crash-safe checkpoints."),
    "resume": ("_train", "Go on with a run that was stopped."),
    "evaluate": ("_inspect", "Measure the field of a run as it is."),
    "report": ("_inspect", "Draw the report of a run again."),
    "predict": ("_predict", "Evaluate the field of a run at points in a file."),
    "compare": ("_inspect", "One table and one picture of several runs."),
    "audit": ("_inspect", "Measure the estimators of the gradient on a problem."),
    "list": ("_main", "List problems, methods, rules, estimators and more."),
    "info": ("_inspect", "What a run is, how far it is, and what came out."),
    "completion": ("_main", "Print what completes the commands in a shell."),
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


@click.command("list")
@click.argument("kind", required=False)
@json_option
def list_command(kind: str | None, as_json: bool) -> None:
    """List problems, methods, rules, estimators and more, all or one KIND of them."""
    from .._config import listed

    known = listed()
    if kind is not None and kind not in known:
        raise click.UsageError(f"unknown kind {kind!r}; {nearest(kind, known)}")
    found = known if kind is None else {kind: known[kind]}
    if as_json:
        print_json(found)
        return
    width = max(len(n) for names in found.values() for n in names)
    for title, names in found.items():
        say(title)
        for name, line in names.items():
            say(f"  {name:<{width}}  {line}")


@click.command("completion")
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
def completion_command(shell: str) -> None:
    """Print what completes the commands in a shell.

    Add `eval "$(sdifp completion bash)"` to ~/.bashrc, or likewise for zsh;
    `sdifp completion fish > ~/.config/fish/completions/sdifp.fish` for fish.
    """
    from click.shell_completion import get_completion_class

    found = get_completion_class(shell)
    assert found is not None
    # The check of the shell's version runs the shell, which need not be here.
    os.environ.setdefault("_SDIFP_COMPLETE", "")
    made = found(program, {}, "sdifp", "_SDIFP_COMPLETE")
    say(*(made.source_template % made.source_vars()).splitlines())


def main(arguments: list[str] | None = None) -> None:
    """Run the program; errors are reported in one sentence, with exit code 2."""
    run = lambda: program.main(arguments, prog_name="sdifp", standalone_mode=False)
    sys.exit(answered(run))
