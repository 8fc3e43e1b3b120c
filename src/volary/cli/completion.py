"""Print the script with which a shell completes verbs and runs."""

from __future__ import annotations

import click

from volary.cli.command.output import say

_INSTALL = {
    "bash": 'eval "$(volary completion bash)"  in ~/.bashrc',
    "zsh": 'eval "$(volary completion zsh)"  in ~/.zshrc',
    "fish": "volary completion fish > ~/.config/fish/completions/volary.fish",
}


@click.command(epilog="\b\n" + "\n".join(f"{shell}: {how}" for shell, how in _INSTALL.items()))
@click.argument("shell", type=click.Choice(list(_INSTALL)))
@click.pass_context
def completion(ctx: click.Context, shell: str) -> None:
    """Print the completion script for SHELL. To install it:"""
    from click.shell_completion import get_completion_class

    complete = get_completion_class(shell)
    assert complete is not None, shell
    say(complete(ctx.find_root().command, {}, "volary", "_VOLARY_COMPLETE").source())
