"""The group: help, version, near misses, completion, laziness, and errors as sentences."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from mapsearch.cli.main import COMMANDS, cli
from mapsearch.errors import BackendMissing, InputError


def python(code: str) -> str:
    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout


def test_import_is_light():
    heavy = ("ortools", "pulp", "highspy", "networkx", "numpy", "pydantic", "rich", "click", "yaml")
    loaded = python(f"import sys, mapsearch; print([name for name in {heavy} if name in sys.modules])")
    assert loaded.strip() == "[]"


def test_help_imports_no_command_and_no_heavy_library():
    heavy = ("ortools", "pulp", "networkx", "numpy", "pydantic", "mapsearch.cli.solve", "mapsearch.cli.model")
    code = (
        "import sys, io; from mapsearch.cli.main import main; out, sys.stdout = sys.stdout, io.StringIO()\n"
        f"code = main(['--help']); print(code, [n for n in {heavy} if n in sys.modules], file=out)"
    )
    assert python(code).strip() == "0 []"


def test_public_names_are_there():
    import mapsearch

    for name in set(mapsearch.__all__) - {"solve", "check"}:
        assert getattr(mapsearch, name).__name__ == name
        assert name in dir(mapsearch)
    with pytest.raises(AttributeError, match="no attribute 'slove'"):
        _ = mapsearch.slove


def test_help_and_version(mapsearch):
    shown = mapsearch("--help")
    assert shown.code == 0
    assert all(name in shown.out and text in shown.out for name, (_, text) in COMMANDS.items())
    assert mapsearch("--version").out.startswith("mapsearch 0.")


def test_python_dash_m():
    done = subprocess.run([sys.executable, "-m", "mapsearch", "--version"], check=False, capture_output=True, text=True)
    assert done.returncode == 0
    assert done.stdout.startswith("mapsearch 0.")


@pytest.mark.parametrize("name", COMMANDS)
def test_command_and_its_short_help_agree_with_the_group(name):
    command = cli.get_command(None, name)
    assert command.name == name
    assert command.help


@pytest.mark.parametrize(
    ("arguments", "hint"),
    [
        (["slove"], "did you mean 'solve'"),
        (["solve", "--modle", "x"], "--model"),
        (["solve", "--topolgy", "x"], "--topology"),
        (["solve", "--format", "jsn"], "json"),
        (["solve", "extra"], "extra"),
        (["check"], "mapping"),
        (["solve", "--top"], "requires an argument"),
    ],
)
def test_usage_errors_hint_and_exit_2(mapsearch, arguments, hint):
    result = mapsearch(*arguments)
    assert result.code == 2
    assert hint in result.err.lower()
    assert result.err.count("\n") == 1


@pytest.mark.parametrize(
    ("error", "code", "text"),
    [
        (InputError("is wrong", file="a.yaml", field="b.c"), 2, "mapsearch: a.yaml: b.c: is wrong\n"),
        (BackendMissing("ortools is not installed"), 5, "mapsearch: ortools is not installed\n"),
        (KeyboardInterrupt(), 130, "mapsearch: interrupted\n"),
        (InputError("two\nlines"), 2, "mapsearch: two lines\n"),
    ],
)
def test_errors_become_one_sentence_and_their_code(mapsearch, api, run_file, error, code, text):
    api.error = error
    result = mapsearch("solve", "--run", run_file)
    assert (result.code, result.err.lstrip("\n"), result.out) == (code, text, "")


def test_a_bug_keeps_its_traceback(mapsearch, api, run_file):
    api.error = ZeroDivisionError("a bug")
    with pytest.raises(ZeroDivisionError):
        mapsearch("solve", "--run", run_file)


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_completion_scripts(mapsearch, shell):
    result = mapsearch("completion", shell)
    assert result.code == 0
    assert "_MAPSEARCH_COMPLETE" in result.out


def test_a_reader_that_leaves_is_no_error():
    done = subprocess.run(
        f"{sys.executable} -m mapsearch completion zsh | true; exit ${{PIPESTATUS[0]}}",
        shell=True,
        check=False,
        executable="/bin/bash",
        capture_output=True,
        text=True,
    )
    assert (done.returncode, done.stderr) == (0, "")


def test_names_complete_without_running_a_command():
    from click.shell_completion import ShellComplete

    complete = ShellComplete(cli, {}, "mapsearch", "_MAPSEARCH_COMPLETE")
    assert [item.value for item in complete.get_completions([], "so")] == ["solve"]
    assert "moe-5t" in [item.value for item in complete.get_completions(["solve", "--model"], "moe")]
    assert "--require-proof" in [item.value for item in complete.get_completions(["solve"], "--req")]


def test_bash_completes_in_a_process_of_its_own():
    program = "import sys; from mapsearch.cli.main import main; sys.exit(main([]))"

    def completed(words):
        about = {"_MAPSEARCH_COMPLETE": "bash_complete", "COMP_WORDS": words, "COMP_CWORD": str(words.count(" "))}
        done = subprocess.run(
            [sys.executable, "-c", program], env={**os.environ, **about}, capture_output=True, text=True, check=True
        )
        return done.stdout.split()

    assert completed("mapsearch so") == ["plain,solve"]
    assert "plain,asic-64" in completed("mapsearch solve --topology asic")


@pytest.mark.parametrize("command", [("topology", "list"), ("model", "show", "mixtral-8x7b"), ("schema", "run")])
def test_a_reader_that_leaves_before_a_table_is_no_error(command):
    process = subprocess.Popen(
        [sys.executable, "-m", "mapsearch", *command], stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )
    process.stdout.close()
    errors = process.stderr.read().decode()
    assert process.wait(timeout=60) == 0
    assert errors == ""
