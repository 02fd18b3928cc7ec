"""Histograms from files: the same loads in every form, and what is refused with its line or field."""

import io
import json
import pickle
import zipfile

import numpy as np
import pytest

from mapsearch.errors import InputError
from mapsearch.experts.files import read_histogram

TOKENS = np.array([[[[3.0, 1.0, 0.0], [2.0, 2.0, 2.0]], [[1.0, 5.0, 4.0], [0.0, 0.0, 7.5]]]])
"""(1 step, 2 layers, 2 sources, 3 experts)."""


def long_lines():
    for layer in range(2):
        for source in range(2):
            for expert in range(3):
                if TOKENS[0, layer, source, expert]:
                    yield f"0,{layer + 3},{source},{expert},{TOKENS[0, layer, source, expert]}"


FORMS = {
    "long.csv": "step,layer,source,expert,tokens\n" + "\n".join(long_lines()),
    "wide.csv": "\ufeffLayer,Source,e0,expert_1,2\n3,0,3,1,0\n3,1,2,2,2\n\n4,0,1,5,4\n4,1,0,0,7.5\n",
    "all.json": json.dumps({"tokens": TOKENS.tolist(), "layers": [3, 4]}),
    "all.yaml": json.dumps({"tokens": TOKENS.tolist(), "layers": ["3", "4"]}),
}


@pytest.mark.parametrize("name", FORMS)
def test_every_form_is_the_same_histogram(tmp_path, name):
    path = tmp_path / name
    path.write_text(FORMS[name], encoding="utf-8")
    found = read_histogram(str(path))
    assert (found.tokens == TOKENS).all()
    assert found.layers == ("3", "4") and found.sources == 2 and found.origin == "measured"


def test_npz_with_names_and_by_itself(tmp_path):
    path = tmp_path / "a.npz"
    np.savez_compressed(path, tokens=TOKENS.astype(np.float32), layers=np.array([3, 4]))
    assert read_histogram(str(path)).layers == ("3", "4")
    np.savez(path, anything=np.arange(1, 7).reshape(2, 3))
    found = read_histogram(str(path))
    assert found.loads.tolist() == [[[1, 2, 3], [4, 5, 6]]] and found.sources == 0


def npz(**arrays):
    buffer = io.BytesIO()
    np.savez(buffer, **arrays)
    return buffer.getvalue()


class Shell:
    def __reduce__(self):
        return (print, ("run",))


def pickled():
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        archive.writestr("tokens.npy", pickle.dumps(Shell()))
    return buffer.getvalue()


@pytest.mark.parametrize(
    ("name", "text", "words"),
    [
        ("a.csv", "expert,tokens\n0,1\n0,2\n", ["line 3", "stand above"]),
        ("a.csv", "expert,tokens\n0,1\n1,x\n", ["line 3", "'x'"]),
        ("a.csv", "expert,tokens\n0,1\n1,-2\n", ["line 3", "-2"]),
        ("a.csv", "expert,tokens\n0,1\n1,nan\n", ["line 3", "nan"]),
        ("a.csv", "expert,tokens\n0,1\n1.5,2\n", ["line 3", "expert", "1.5"]),
        ("a.csv", "expert,tokens\n0,1\n1\n", ["line 3", "1 fields"]),
        ("a.csv", "expert,tokens\n", ["no lines"]),
        ("a.csv", "expert,tokens,tokens\n0,1,1\n", ["twice"]),
        ("a.csv", "expert,bytes\n0,1\n", ["'bytes'", "tokens"]),
        ("a.csv", "layer,tokens\n0,1\n", ["columns layer or tokens", "column per expert"]),
        ("a.csv", "expert,tokens\n0,0\n1,0\n", ["no tokens"]),
        ("a.csv", "expert,tokens\n0,1\n99999999999,1\n", ["99,999,999,999"]),
        ("a.csv", "", ["is empty"]),
        ("a.json", "[[1, 2], [3]]", ["equal length"]),
        ("a.json", '{"loads": [1, 2]}', ["loads", "tokens"]),
        ("a.json", '{"tokens": [1, -2]}', ["expert 1", "-2"]),
        ("a.json", '{"tokens": [[1, 2], [0, 0]]}', ["layer 1", "no tokens"]),
        ("a.json", '{"tokens": [1, 2], "layers": [1, 2]}', ["layers", "1 layers"]),
        ("a.json", '{"tokens": [[[[[1, 2]]]]]}', ["5 dimensions"]),
        ("a.json", "[7]", ["nothing to balance"]),
        ("a.npz", pickled(), ["not numbers"]),
        ("a.npz", npz(tokens=np.array([Shell()], dtype=object)), ["npz", "pickle"]),
        ("a.npz", npz(tokens=np.array(["a", "b"])), ["not numbers"]),
        ("a.npz", npz(a=np.ones(3), b=np.ones(3)), ["a or b", "tokens"]),
        ("a.npz", b"nothing of the kind", ["npz"]),
        ("a.npz", npz(tokens=np.array([1.0, np.inf])), ["inf"]),
    ],
)
def test_what_is_refused(tmp_path, capsys, name, text, words):
    path = tmp_path / name
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    with pytest.raises(InputError) as refused:
        read_histogram(str(path))
    assert str(path) in str(refused.value)
    assert all(word in str(refused.value) for word in words), refused.value
    assert capsys.readouterr().out == ""  # nothing pickled has run


def test_a_bomb_is_refused_before_it_is_unpacked(tmp_path):
    path = tmp_path / "bomb.npz"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive, archive.open("tokens.npy", "w") as inside:
        for _ in range(600):
            inside.write(bytes(2**20))
    with pytest.raises(InputError, match="unpacks to 600 MiB"):
        read_histogram(str(path))
