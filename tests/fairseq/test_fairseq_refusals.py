"""What the plug-in refuses: a sentence and exit code 2."""

from __future__ import annotations

import shutil
from types import SimpleNamespace

import pytest
from fairseq_commands import generate, with_neighbours


def refused(capsys, toy, models, *arguments) -> str:
    """The sentence that the plug-in refuses to generate with."""
    capsys.readouterr()
    with pytest.raises(SystemExit) as end:
        generate(toy.data, models, *arguments)
    assert end.value.code == 2
    lines = [line for line in capsys.readouterr().err.splitlines() if line.startswith("knn-seq: ")]
    assert len(lines) == 1
    assert lines[0].endswith(".")
    return lines[0]


def test_no_datastore(capsys, toy, tmp_path):
    assert "is not a datastore" in refused(capsys, toy, toy.models[0], *with_neighbours(tmp_path))


def test_none_given(capsys, toy):
    assert "--knn-datastore" in refused(capsys, toy, toy.models[0], *with_neighbours(""))


def test_a_datastore_of_another_model(capsys, toy, build_store):
    sentence = refused(capsys, toy, toy.models[0], *with_neighbours(build_store(1)))
    assert "was made with the model" in sentence
    assert "come out differently" in sentence


def test_another_key(capsys, toy, build_store):
    sentence = refused(capsys, toy, toy.models[0], *with_neighbours(build_store(), key="decoder.layers.0.fc1"))
    assert "come out differently" in sentence


def test_a_key_of_another_size(capsys, toy, build_store):
    sentence = refused(capsys, toy, toy.models[0], *with_neighbours(build_store(), key="decoder.layers.1.fc2"))
    assert "dimensions" in sentence


def test_a_key_that_is_not_there(capsys, toy, build_store):
    assert "the path of a module" in refused(capsys, toy, toy.models[0], *with_neighbours(build_store(), key="fc9"))


def test_another_metric(capsys, toy, build_store):
    assert "searched by l2, not by ip" in refused(
        capsys, toy, toy.models[0], *with_neighbours(build_store(), distance_metric="ip")
    )


def test_more_datastores_than_models(capsys, toy, build_store):
    two = f"{build_store(0)},{build_store(1)}"
    assert "2 datastores" in refused(capsys, toy, toy.models[0], *with_neighbours(two))


def test_other_dictionaries(capsys, toy, build_store, tmp_path):
    """As many symbols, but two of them have changed places: fairseq itself does not see that."""
    data = tmp_path / "data"
    shutil.copytree(toy.data, data)
    first, second, *others = (data / "dict.yy.txt").read_text().splitlines(keepends=True)
    (data / "dict.yy.txt").write_text("".join([second, first, *others]))
    other = SimpleNamespace(data=data)
    assert "dictionaries differ" in refused(capsys, other, toy.models[0], *with_neighbours(build_store()))


@pytest.mark.parametrize(("option", "value"), [("k", 0), ("weight", 1.5), ("temperature", 0), ("retriever", "none")])
def test_bad_settings(capsys, toy, build_store, option, value):
    refused(capsys, toy, toy.models[0], *with_neighbours(build_store(), **{option: value}))


def test_a_subset_without_sentences(capsys, toy, build_store):
    sentence = refused(capsys, toy, toy.models[0], *with_neighbours(build_store(), retriever="subset"))
    assert "not prepared for subset search" in sentence


def test_scoring_references(capsys, toy, build_store):
    sentence = refused(capsys, toy, toy.models[0], *with_neighbours(build_store()), "--score-reference")
    assert "SequenceScorer" in sentence
