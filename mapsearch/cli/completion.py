"""`mapsearch completion`: the completion script of a shell."""

from __future__ import annotations

import click
from click.shell_completion import get_completion_class


@click.command("completion")
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
@click.pass_context
def command(ctx: click.Context, shell: str) -> None:
    """Print the completion script of SHELL.

    \b
    bash: mapsearch completion bash > ~/.local/share/bash-completion/completions/mapsearch
    zsh:  mapsearch completion zsh  > a folder of $fpath, as _mapsearch
    fish: mapsearch completion fish > ~/.config/fish/completions/mapsearch.fish
    """
    kind = get_completion_class(shell)
    if kind is None:  # pragma: no cover - click knows the three shells of the choice above
        raise click.UsageError(f"no completion for {shell}")
    click.echo(kind(ctx.find_root().command, {}, "mapsearch", "_MAPSEARCH_COMPLETE").source())
