"""The command that makes a smaller datastore."""

from __future__ import annotations

import json
import shutil

import pytest

from knn_seq.datastore import Datastore


def test_prune(knn_seq, number_store, tmp_path):
    small = tmp_path / "small"
    code, out, err = knn_seq("prune", number_store.path, "--output", small)
    assert code == 0, err
    kept = round(0.6 * len(number_store))
    assert f"60% of the {len(number_store):,} entries of {number_store.path}" in out
    assert f"{kept} of {len(number_store)} entries stay" in err
    assert len(Datastore(small)) == kept
    code, out, _ = knn_seq("info", small, "--json")
    assert json.loads(out)["pruned"]["keep"] == 0.6
    code, out, err = knn_seq("prune", number_store.path, "--output", small)
    assert (code, "complete already" in err) == (0, True)
    options = ("--method", "ngram", "--method-option", "n=3", "--keep", 0.5, "-q")
    assert knn_seq("prune", number_store.path, "--output", tmp_path / "other", *options)[:2] == (0, "")
    assert Datastore(tmp_path / "other").manifest.pruned.options == {"n": 3, "seed": 0}


@pytest.fixture
def unfinished(number_store, tmp_path):
    path = tmp_path / "unfinished"
    shutil.copytree(number_store.path, path)
    manifest = json.loads((path / "datastore.json").read_text())
    manifest["steps"]["index"]["state"] = "running"
    (path / "datastore.json").write_text(json.dumps(manifest))
    return path


def test_bad_input_is_one_sentence_and_exit_code_2(knn_seq, number_store, unfinished, save_model, tmp_path):
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "thesis.tex").touch()
    store, new = number_store.path, tmp_path / "new"
    cases = [
        ((store,), "--output"),
        ((store, "--output", new, "--keep", 0), "above 0 and at most 1, not 0"),
        ((store, "--output", new, "--keep", 1.5), "above 0 and at most 1, not 1.5"),
        ((store, "--output", new, "--keep", "nan"), "above 0 and at most 1, not nan"),
        ((store, "--output", new, "--method", "axe"), "no pruning method 'axe': choose from known, merge, ngram"),
        ((store, "--output", new, "--method-option", "n=2"), "The pruning method 'known' has no option 'n'"),
        ((store, "--output", tmp_path / "full"), "is not empty and is no datastore"),
        ((store, "--output", tmp_path / "full" / "thesis.tex"), "is not empty and is no datastore"),
        ((store, "--output", unfinished), "already holds another datastore"),
        ((store, "--output", store), "is the datastore to prune"),
        ((unfinished, "--output", new), "is not complete: its build stopped at 'index'"),
        ((tmp_path / "none", "--output", new), "is not a datastore"),
        ((store, "--output", new, "--model", save_model("marian", 1)), "was made with the model"),
    ]
    for arguments, sentence in cases:
        code, out, err = knn_seq("prune", *arguments, "-q")
        assert code == 2, (arguments, out, err)
        assert sentence in err, (arguments, err)
        assert err.startswith("knn-seq: ")
        assert err.count("\n") == 1, (arguments, err)
    assert not new.exists()
