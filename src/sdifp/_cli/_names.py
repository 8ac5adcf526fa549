"""list and completion."""

import os

import click

from .._nearest import nearest
from ._options import json_option, print_json
from ._output import say


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

    from ._main import program

    found = get_completion_class(shell)
    assert found is not None
    # The check of the shell's version runs the shell, which need not be here.
    os.environ.setdefault("_SDIFP_COMPLETE", "")
    made = found(program, {}, "sdifp", "_SDIFP_COMPLETE")
    say(*(made.source_template % made.source_vars()).splitlines())
