from __future__ import annotations

import gzip
import resource
import subprocess
import sys
import time

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tiny_models import number_line

from knn_seq import Datastore, KnnSeqError
from knn_seq.build.batches import plan_batches
from knn_seq.build.tokens import UNITS_PER_CHUNK, tokenize
from knn_seq.corpus import BadPair, SentencePair
from knn_seq.errors import DamagedFile
from knn_seq.models import load_model
from knn_seq.settings import ModelSettings
from knn_seq.storage import Ragged


def ragged(lengths):
    return Ragged(np.zeros(sum(lengths), np.int32), np.cumsum([0, *lengths]))


@given(st.lists(st.tuples(st.integers(1, 60), st.integers(1, 60)), min_size=1, max_size=200), st.integers(20, 400))
def test_batches_hold_every_sentence_once_and_keep_to_the_budget(lengths, budget):
    sources, targets = ragged([s for s, _ in lengths]), ragged([t for _, t in lengths])
    batches = list(plan_batches(sources, targets, budget))
    assert sorted(np.concatenate(batches).tolist()) == list(range(len(lengths)))
    for batch in batches:
        width = max(lengths[i][0] for i in batch) + max(lengths[i][1] for i in batch)
        assert len(batch) == 1 or len(batch) * width <= budget


def test_batches_pad_little():
    generator = np.random.default_rng(0)
    lengths = generator.integers(5, 60, 5000)
    others = np.maximum(1, lengths + generator.integers(-4, 5, 5000))
    batches = list(plan_batches(ragged(lengths.tolist()), ragged(others.tolist()), 4096))
    padded = sum(len(batch) * (lengths[batch].max() + others[batch].max()) for batch in batches)
    assert (lengths.sum() + others.sum()) / padded > 0.9


def test_all_formats_give_the_same_datastore(number_store, number_corpus, save_model, tmp_path):
    pairs = [line.split("\t") for line in number_corpus.read_text().splitlines()]
    (tmp_path / "a.src").write_text("".join(f"{s}\n" for s, _ in pairs))
    with gzip.open(tmp_path / "a.tgt", "wt") as file:
        file.write("".join(f"{t}\n" for _, t in pairs))
    store = Datastore.build(
        tmp_path / "store",
        save_model(),
        source=tmp_path / "a.src",
        target=tmp_path / "a.tgt",
        index_recipe="Flat",
    )
    np.testing.assert_array_equal(store.values.items, number_store.values.items)
    np.testing.assert_array_equal(store.keys, number_store.keys)
    assert store.texts[7] == number_store.texts[7] == tuple(pairs[7])


def test_tokenizing_in_processes_is_the_same(save_model, tmp_path):
    generator = np.random.default_rng(1)
    lines = [number_line(generator).rstrip().split("\t") for _ in range(15 * UNITS_PER_CHUNK)]
    pairs = [SentencePair(*sides, f"line {number}") for number, sides in enumerate(lines, 1)]
    tokenizer = load_model(ModelSettings(save_model())).tokenizer
    alone = list(tokenize(pairs, tokenizer, max_length=7, workers=1))
    together = list(tokenize(pairs, tokenizer, max_length=7, workers=2))
    assert len(alone) == len(together) == 15
    for one, two in zip(alone, together, strict=True):
        assert one.pairs == two.pairs
        assert one.bad == two.bad
        np.testing.assert_array_equal(one.targets[0], two.targets[0])
        np.testing.assert_array_equal(one.sources[1], two.sources[1])
    assert sum(len(chunk.bad) for chunk in alone) > 0


def test_bad_pairs_are_counted(save_model, tmp_path):
    corpus = tmp_path / "train.tsv"
    long = " ".join(["5"] * 40)
    corpus.write_bytes(f"4 5\t6 7\nalone\n\t8\n{long}\t9\n8 9\t10 11\n".encode() + b"5\t\xff\xfe\n")
    store = Datastore.build(tmp_path / "store", save_model(), corpus, max_length=20, calibration_sentences=0)
    assert store.manifest.counts.sentences == 2
    assert store.manifest.counts.rejected == {
        "missing column": 1,
        "empty side": 1,
        "too long": 1,
        "not UTF-8": 1,
    }


def test_strict_stops_at_a_bad_pair(save_model, tmp_path):
    corpus = tmp_path / "train.tsv"
    corpus.write_text("4 5\t6 7\nalone\n")
    with pytest.raises(DamagedFile, match=r"train\.tsv, line 2: no usable sentence pair \(missing column\)"):
        Datastore.build(tmp_path / "store", save_model(), corpus, strict=True)


@pytest.mark.parametrize(
    ("files", "strict"),
    [
        ({"corpus": ""}, False),
        ({"corpus": "\n\n"}, False),
        ({"corpus": "one side only\n"}, False),
        ({"corpus": f"{'4 ' * 600}\t5\n"}, False),
        ({"corpus": "4 5\t6 7\none side only\n"}, True),
        ({"source": "4 5\n6\n", "target": "7 8\n"}, False),
    ],
)
def test_a_corpus_that_has_to_be_fixed_leaves_no_datastore_behind(files, strict, save_model, tmp_path):
    options = {"index_recipe": "Flat", "calibration_sentences": 0, "strict": strict, "checkpoint_seconds": 0.0}
    paths = {name: tmp_path / f"{name}.tsv" for name in files}
    for name, path in paths.items():
        path.write_text(files[name])
    with pytest.raises(DamagedFile, match=r"no usable sentence pair|same number of lines"):
        Datastore.build(tmp_path / "store", save_model(), **paths, **options)
    assert {path.name for path in (tmp_path / "store").iterdir()} <= {".lock"}
    for path in paths.values():
        path.write_text("4 5\t6 7\n")
    assert Datastore.build(tmp_path / "store", save_model(), **paths, **options).manifest.counts.sentences == 1


def test_pairs_in_memory(number_store, number_corpus, save_model, tmp_path):
    pairs = [tuple(line.split("\t")) for line in number_corpus.read_text().splitlines()]
    store = Datastore.build(tmp_path / "store", save_model(), pairs, index_recipe="Flat")
    np.testing.assert_array_equal(store.keys, number_store.keys)
    assert store.manifest.corpus.description == "120 sentence pairs"
    assert Datastore.build(store.path, save_model(), pairs, index_recipe="Flat").manifest == store.manifest
    with pytest.raises(KnnSeqError, match="with another corpus"):
        Datastore.build(store.path, save_model(), pairs[::-1], index_recipe="Flat")


def test_pairs_with_and_without_tokens_in_one_chunk(save_model):
    tokenizer = load_model(ModelSettings(save_model())).tokenizer
    units = [
        SentencePair("4 5", "6", "pair 1"),
        BadPair("pair 2", "empty side"),
        SentencePair("text", "for people", "pair 3", (9, 3), (8, 7, 3)),
        SentencePair("4 " * 9, "6", "pair 4"),
        SentencePair("5", "7 8", "pair 5"),
    ]
    [chunk] = tokenize(units, tokenizer, max_length=5, workers=1)
    assert chunk.pairs == [units[0], units[2], units[4]]
    assert chunk.bad == [units[1], BadPair("pair 4", "too long")]
    assert chunk.units == 5
    one, three = tokenizer.encode_targets(["6", "7 8"])
    assert chunk.targets[0].tolist() == [*one, 8, 7, 3, *three]
    assert chunk.sources[1].tolist() == [
        len(tokenizer.encode_sources(["4 5"])[0]),
        2,
        len(tokenizer.encode_sources(["5"])[0]),
    ]


def test_a_finished_datastore_is_not_built_again(number_store, number_corpus, save_model):
    before = {path: path.stat().st_mtime_ns for path in number_store.base.path.glob("*.h5")}
    Datastore.build(number_store.path, save_model(), number_corpus, index_recipe="Flat")
    assert before == {path: path.stat().st_mtime_ns for path in number_store.base.path.glob("*.h5")}


@pytest.mark.parametrize(
    ("change", "what"),
    [
        ({"model": ("marian", 1)}, "model"),
        ({"key": "ffn_out"}, "key"),
        ({"key_dtype": "float32"}, "key dtype"),
        ({"max_length": 9}, "maximum length"),
        ({"distance_metric": "cosine"}, "distance metric"),
        ({"corpus": True}, "corpus"),
    ],
)
def test_another_build_into_the_same_folder_is_refused(change, what, number_store, number_corpus, save_model, tmp_path):
    corpus = number_corpus
    if change.pop("corpus", False):
        corpus = tmp_path / "other.tsv"
        corpus.write_text("4 5\t6 7\n")
    model = save_model(*change.pop("model", ("marian", 0)))
    before = number_store.base.keys_path.read_bytes()
    with pytest.raises(KnnSeqError, match=f"with another {what}"):
        Datastore.build(number_store.path, model, corpus, index_recipe="Flat", **change)
    assert number_store.base.keys_path.read_bytes() == before


def test_a_folder_with_other_things_is_left_alone(save_model, number_corpus, tmp_path):
    (tmp_path / "thesis.txt").write_text("years of work")
    with pytest.raises(KnnSeqError, match="not empty"):
        Datastore.build(tmp_path, save_model(), number_corpus)
    assert (tmp_path / "thesis.txt").read_text() == "years of work"


COMMAND = [sys.executable, "-m", "knn_seq.cli.main", "build", "--quiet"]


def test_two_builds_into_one_folder_refuse_each_other(save_model, number_corpus, tmp_path):
    script = (
        "import sys, time; from pathlib import Path; from knn_seq.storage import DatastoreFolder\n"
        "with DatastoreFolder(sys.argv[1]).lock(): print('locked', flush=True); time.sleep(60)"
    )
    other = subprocess.Popen([sys.executable, "-c", script, tmp_path / "store"], stdout=subprocess.PIPE)
    try:
        assert other.stdout.readline() == b"locked\n"
        result = subprocess.run(
            [*COMMAND, tmp_path / "store", "--model", save_model(), "--corpus", number_corpus],
            capture_output=True,
            text=True,
            check=False,
        )
    finally:
        other.kill()
        other.wait()
    assert result.returncode == 2
    assert f"Another process (pid {other.pid}) is writing" in result.stderr
    assert "Traceback" not in result.stderr


def test_a_full_disk_keeps_what_was_finished(save_model, tmp_path):
    generator = np.random.default_rng(2)
    corpus = tmp_path / "train.tsv"
    corpus.write_text("".join(number_line(generator) for _ in range(3000)))
    arguments = [*COMMAND, tmp_path / "store", "--model", save_model(), "--corpus", corpus, "--index-recipe", "Flat"]
    limit = 300_000  # bytes of one file: tokens and text fit, the keys do not
    result = subprocess.run(
        arguments,
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit)),
        capture_output=True,
        text=True,
        check=False,
    )
    assert result.returncode == 2, result.stderr
    assert "The disk is full" in result.stderr
    assert "Traceback" not in result.stderr
    assert (tmp_path / "store" / "segments/1/values.h5").exists()
    stamp = (tmp_path / "store" / "segments/1/values.h5").stat().st_mtime_ns
    time.sleep(0.01)
    assert subprocess.run(arguments, check=False).returncode == 0
    assert (tmp_path / "store" / "segments/1/values.h5").stat().st_mtime_ns == stamp
    Datastore(tmp_path / "store")


def test_keys_that_float16_cannot_hold_are_refused(tmp_path, number_corpus):
    import torch
    from tiny_models import make_model

    from knn_seq.build import build_datastore
    from knn_seq.corpus import open_corpus

    model = make_model("gpt2")
    with torch.no_grad():
        model.network.transformer.h[-1].ln_2.weight.fill_(1e6)
    with pytest.raises(KnnSeqError, match="float32 keys"):
        build_datastore(tmp_path / "store", model, open_corpus(number_corpus))
