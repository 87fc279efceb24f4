"""What a user of a datastore that changes relies on."""

from __future__ import annotations

import json
import os
import resource
import shutil
import threading
from dataclasses import replace

import numpy as np
import pytest
from live_stores import OPTIONS, PAIRS

import knn_seq.live.fold
import knn_seq.live.recall
import knn_seq.storage.flat
from knn_seq.corpus import SentencePair, open_corpus
from knn_seq.datastore import Datastore
from knn_seq.errors import DamagedFile, InvalidSetting, KnnSeqError, ModelMismatch
from knn_seq.explain import explain
from knn_seq.explain.explanation import to_dicts
from knn_seq.models import Source
from knn_seq.sentences.open import open_sentences
from knn_seq.storage import FolderLock
from knn_seq.translator import Translator

SEARCH = {"k": 4, "weight": 0.95, "temperature": 5.0, "beam_size": 1, "combiner": "fixed", "max_length": 8}
NEW = ("51 52 53", "40 41 42 43")


@pytest.fixture
def translator(store, model):
    return Translator(store.path, model, **SEARCH)


@pytest.mark.parametrize("retriever", ["full", "subset"])
def test_a_running_translator_uses_what_is_added_updated_and_deleted(fresh, model, retriever):
    store = fresh("bm25")
    translator = Translator(store.path, model, retriever=retriever, subset_size=50, **SEARCH)
    before = translator.translate(NEW[0]).text
    [name] = store.add([NEW], model)
    assert translator.translate(NEW[0]).text == NEW[1]
    assert store.update([(NEW[0], "44 45 46")], model) == [name]
    assert translator.translate(NEW[0]).text == "44 45 46"
    assert store.delete([name]) == [name]
    assert translator.translate(NEW[0]).text == before
    assert translator.store.manifest.generation == store.manifest.generation == 4


def test_the_large_index_is_opened_once(store, model, translator):
    translator.translate(NEW[0])
    index = translator.decoder.retriever(translator.decoder.settings()).index
    store.add([NEW], model)
    store.delete(source=PAIRS[2][0])
    translator.translate(NEW[0])
    renewed = translator.decoder.retriever(translator.decoder.settings()).index
    assert renewed is not index
    assert renewed.first is index.first
    store.compact()
    translator.translate(NEW[0])
    assert translator.decoder.retriever(translator.decoder.settings()).index.first is not index.first


def test_a_batch_sees_one_generation(store, model, translator):
    settings = translator.decoder.settings()
    batch = translator.decoder.batch([], settings)
    frozen = translator.decoder.frozen()
    store.add([NEW], model)
    store.delete(source=PAIRS[0][0])
    translator.translate(NEW[0])
    assert batch.retriever is frozen.retriever(settings)
    assert batch.retriever is not translator.decoder.retriever(settings)
    queries = model.keys(store.token_pairs([0]))
    entries = batch.retriever.retrieve(queries, None, settings).ids
    assert set(frozen.store.locate(entries[:, 0].numpy())[0].tolist()) == {0}  # it is not deleted there
    now = translator.decoder.retriever(settings).retrieve(queries, None, settings).ids
    assert 0 not in translator.store.locate(now.numpy())[0]


def test_explanations_name_id_corpus_and_date(store, model, translator):
    store.add([SentencePair(*NEW, "", id="tu-7", corpus="new.tmx", date="2024-05-01")], model)
    translation = translator.translate(NEW[0])
    [told] = to_dicts(explain(translator, [translation]), translator.store)
    nearest = told["tokens"][0]["neighbours"][0]
    assert {name: nearest[name] for name in ("id", "corpus", "date")} == {
        "id": "tu-7",
        "corpus": "new.tmx",
        "date": "2024-05-01",
    }


def test_ids_are_unique_and_survive_a_compaction(store, model):
    pairs = [SentencePair("30 31", "32 33", "", id="same"), SentencePair("34 35", "36 37", "", id="same")]
    assert store.add(pairs, model) == ["same", "same.2"]
    assert store.add(pairs[:1], model) == ["same.3"]
    before = {pair.id: (pair.source, pair.corpus, pair.date) for pair in store.live_pairs()}
    store.delete(["same.2"])
    store.compact()
    after = {pair.id: (pair.source, pair.corpus, pair.date) for pair in store.live_pairs()}
    assert after == {name: facts for name, facts in before.items() if name != "same.2"}


def test_an_update_by_id_may_change_the_source(store, model):
    [name] = store.add([SentencePair("30 31", "32 33", "", id="a")], model)
    assert store.update([SentencePair("30 31 35", "32 33", "", id=name)], model) == ["a"]
    assert [pair.source for pair in store.live_pairs() if pair.id == "a"] == ["30 31 35"]


def test_deleting_by_corpus_and_what_is_not_there(store, model):
    store.add([SentencePair(*NEW, "", corpus="old.tmx")], model)
    assert store.delete(["nothing"]) == []
    generation = store.manifest.generation
    assert len(store.delete(corpus="old.tmx")) == 1
    assert store.manifest.generation == generation + 1
    assert store.delete(corpus="old.tmx") == []
    with pytest.raises(InvalidSetting, match="what is to be deleted"):
        store.delete()


def test_what_cannot_be_added_changes_nothing(store, model):
    before = sorted(store.path.rglob("*"))
    with pytest.raises(DamagedFile, match="no usable sentence pair"):
        store.add([("", "")], model)
    assert sorted(path for path in store.path.rglob("*") if path.name != ".lock") == [
        path for path in before if path.name != ".lock"
    ]


def test_everything_may_be_deleted(store, model, translator):
    store.delete([pair.id for pair in store.live_pairs()])
    assert translator.translate(NEW[0]).text
    with pytest.raises(KnnSeqError, match="All sentence pairs"):
        store.compact()
    store.add([NEW], model)
    assert translator.translate(NEW[0]).text == NEW[1]
    store.compact()
    assert [pair.source for pair in store.live_pairs()] == [NEW[0]]


def test_find_is_by_words_best_first(store, model):
    store.add([("31 32 33", "41 42"), ("31 32 34 35 36 37", "43")], model)
    found = store.find("31 33")
    assert (found[0].source, found[0].target) == ("31 32 33", "41 42")
    assert "31 32 34 35 36 37" in [pair.source for pair in found]
    assert store.find("31 33", limit=1)[0].source == "31 32 33"
    assert not store.find("no such words")
    assert not store.find("31 33", corpus="elsewhere")
    store.delete(source="31 32 33")
    assert "31 32 33" not in [pair.source for pair in store.find("31 33", limit=None)]


def test_subset_search_finds_what_a_store_built_at_once_finds(fresh, model, tmp_path):
    for search in ("bm25", "encoder:l2"):
        store = fresh(search)
        added = [("30 31 32", "33"), ("9 30 34", "35 36")]
        store.add(added, model)
        store.delete(source=PAIRS[1][0])
        pairs = [pair for pair in PAIRS if pair != PAIRS[1]] + added
        built = Datastore.build(
            tmp_path / search.replace(":", "-"), model, pairs, sentence_search=search, codes="Flat", **OPTIONS
        )
        asked = [Source(text, model.tokenizer.encode_sources([text])[0]) for text in ("30 31", "9 34 8")]
        got, wanted = (open_sentences(each, model).nearest(asked, 3) for each in (store, built))
        for ours, theirs in zip(got.tolist(), wanted.tolist(), strict=True):
            texts = [[each.texts[n] for n in row if n >= 0] for each, row in ((store, ours), (built, theirs))]
            assert sorted(texts[0]) == sorted(texts[1])


def test_additions_to_codes_are_compared_by_their_keys(model, tmp_path):
    store = Datastore.build(tmp_path / "store", model, PAIRS, sentence_search="bm25", codes="PQ16x4", **OPTIONS)
    translator = Translator(store.path, model, retriever="subset", subset_size=50, **SEARCH)
    store.add([NEW], model)
    assert translator.translate(NEW[0]).text == NEW[1]


def test_a_second_writer_waits_or_is_told_who_holds_the_lock(store, model):
    with FolderLock(store.path), pytest.raises(KnnSeqError, match=rf"pid {os.getpid()}"):
        store.delete(["a"], wait=0)
    lock = FolderLock(store.path)
    lock.__enter__()
    threading.Timer(0.3, lock.release).start()
    assert store.add([NEW], model, wait=30)
    errors: list[BaseException] = []

    def add(number: int) -> None:
        try:
            Datastore(store.path).delete(source=PAIRS[number][0])
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=add, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not errors
    assert Datastore(store.path).manifest.counts.sentences == len(PAIRS) + 1 - len(threads)


def test_a_reader_during_compactions_never_fails(fresh, model):
    store = fresh("bm25")
    translator = Translator(store.path, model, retriever="subset", subset_size=50, **SEARCH)
    stop, errors, read = threading.Event(), [], 0

    def reading() -> None:
        nonlocal read
        while not stop.is_set():
            try:
                reader = Datastore(store.path)
                assert reader.find("8 9") is not None
                assert len(list(reader.live_pairs())) >= len(PAIRS) - 1
                read += 1
            except BaseException as error:
                errors.append(error)
                return

    thread = threading.Thread(target=reading)
    thread.start()
    for number in range(6):
        store.update([(PAIRS[0][0], f"{40 + number} 41")], model)
        store.compact()
        translation = translator.translate(PAIRS[0][0])
        explain(translator, [translation])
    stop.set()
    thread.join()
    assert not errors
    assert read


def open_files() -> int:
    return len(os.listdir("/proc/self/fd"))


def test_memory_and_open_files_do_not_grow(store, model, monkeypatch):
    """200 additions here; benchmarks/live.py makes 1,000."""
    monkeypatch.setattr(knn_seq.live.fold, "MOST_SMALL", 8)
    monkeypatch.setattr(os, "fsync", lambda handle: None)
    translator = Translator(store.path, model, **SEARCH)

    def change(number: int) -> None:
        store.update([SentencePair(NEW[0], f"{20 + number % 30} 41", "", id="a")], model)
        translator.translate(NEW[0])

    for number in range(40):
        change(number)
    files, memory = open_files(), resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    for number in range(160):
        change(number)
    assert open_files() <= files + 20
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss < memory + (64 << 10)
    assert len(store.manifest.segments) <= 10
    assert translator.translate(NEW[0]).text == "29 41"


def test_what_was_added_to_the_index_stays_in_few_segments(fresh, model, monkeypatch):
    """80 additions here, with a fold into the index every seventh; benchmarks/live.py makes 1,000."""
    monkeypatch.setattr(knn_seq.live.fold, "SMALL_ENTRIES", 20)
    monkeypatch.setattr(knn_seq.storage.flat, "READ_BYTES", 0)
    monkeypatch.setattr(os, "fsync", lambda handle: None)
    store = fresh()
    manifest = store.manifest
    manifest.build = replace(manifest.build, auto_compact=0.0)
    store.save(manifest)
    translator = Translator(store.path, model, **SEARCH)
    used, added = [], []
    for number in range(80):
        added.append(
            store.add([(f"{30 + number % 20} {9 + number % 40} {8 + number // 20}", f"{20 + number % 30} 41")], model)
        )
        translator.translate(NEW[0])
        used.append((open_files(), len(store.manifest.segments)))
        if number % 9 == 0:
            store.delete(added[number // 2])
    assert store.manifest.indexes["default"].entries > 200
    assert max(segments for _, segments in used[40:]) <= max(segments for _, segments in used[:40]) + 1
    segment_files = max(files for files, _ in used[:40]) // max(segments for _, segments in used[:40])
    assert max(files for files, _ in used[40:]) <= max(files for files, _ in used[:40]) + segment_files
    assert translator.translate("49 48 11").text == "39 41"


def test_merging_needs_the_same_model(store, built, save_model, tmp_path, model):
    other = Datastore.build(tmp_path / "other", save_model("marian", 5), [("5 6", "7 8")], **OPTIONS)
    with pytest.raises(ModelMismatch, match="another model"):
        Datastore.merge(store, other, tmp_path / "both")
    both = Datastore.merge(store, built(), tmp_path / "twice")
    assert both.manifest.counts.sentences == 2 * len(PAIRS)
    assert len({pair.id for pair in both.live_pairs()}) == 2 * len(PAIRS)
    np.testing.assert_array_equal(both.keys[: len(store)], store.keys)


def test_a_pruned_datastore_takes_additions(store, model, tmp_path):
    small = store.prune(tmp_path / "small", "merge", 0.9, model=model)
    entries = len(small)
    small.add([NEW], model)
    small.delete(source=PAIRS[3][0])
    for _ in range(2):
        assert small.counts is not None
        sentences, positions = small.locate(np.arange(len(small)))
        tokens = [small.targets[s][p] for s, p in zip(sentences.tolist(), positions.tolist(), strict=True)]
        np.testing.assert_array_equal(tokens, small.values.items[np.arange(len(small))])
        assert Translator(small, model, **SEARCH).translate(NEW[0]).text == NEW[1]
        small.compact()
    assert small.manifest.compacted
    assert len(small) < entries + 5
    assert small.counts[-5:].tolist() == [1] * 5


def test_what_needs_one_segment_says_so(store, model, tmp_path):
    store.add([NEW], model)
    for action in (
        lambda: store.prune(tmp_path / "small", model=model),
        lambda: store.prepare_subset("bm25", model=model),
    ):
        with pytest.raises(KnnSeqError, match="knn-seq compact"):
            action()


def test_a_translator_adds_with_its_own_model(translator):
    assert translator.add([NEW])
    assert translator.translate(NEW[0]).text == NEW[1]
    translator.add([(NEW[0], "44 45")], update=True)
    assert translator.translate(NEW[0]).text == "44 45"


def test_so_many_changes_compact_by_themselves(store, model, monkeypatch):
    monkeypatch.setattr(knn_seq.live.fold, "SMALL_ENTRIES", 5)
    store.add([(source, "30 31 32 33 34") for source, _ in PAIRS], model)
    assert store.manifest.compacted
    assert store.manifest.counts.sentences == 2 * len(PAIRS)


def test_a_compaction_tells_the_recall_before_and_after(store, model, monkeypatch, caplog):
    monkeypatch.setattr(knn_seq.live.recall, "FLAT_ENTRIES", 0)
    store.add([NEW], model)
    with caplog.at_level("INFO", "knn_seq.live.recall"):
        store.compact()
    assert "recall@16" in caplog.text
    assert "1.000 before, 1.000 now" in caplog.text


def test_commands(knn_seq, number_store, tmp_path):
    path = tmp_path / "store"
    shutil.copytree(number_store.path, path)
    (tmp_path / "new.tsv").write_text("51 52 53\t40 41 42\n51 54\t43\n")
    code, out, _ = knn_seq("add", path, "--corpus", tmp_path / "new.tsv", "--device", "cpu")
    assert (code, out) == (0, "2 sentence pairs added; there are 122 now.\n")
    (tmp_path / "corrected.tsv").write_text("51 54\t44\n")
    assert knn_seq("update", path, "--corpus", tmp_path / "corrected.tsv", "--device", "cpu")[0] == 0
    code, out, _ = knn_seq("find", path, "51 54", "--json", "--limit", "1")
    [found] = [json.loads(line) for line in out.splitlines()]
    assert (code, found["source"], found["target"], found["corpus"]) == (0, "51 54", "44", "corrected.tsv")
    code, out, _ = knn_seq("export", path, "--format", "jsonl", "--words", "51")
    assert {json.loads(line)["id"] for line in out.splitlines()} >= {found["id"]}
    assert knn_seq("export", path, "--format", "tmx", "--output", tmp_path / "out.tmx")[0] == 2  # no languages
    languages = ("--source-lang", "pt", "--target-lang", "en")
    assert knn_seq("export", path, "--format", "tmx", *languages, "--output", tmp_path / "out.tmx")[0] == 0
    read = list(open_corpus(tmp_path / "out.tmx"))
    assert [pair[:2] for pair in read] == [pair[:2] for pair in Datastore(path).live_pairs()]
    assert found["id"] in {pair.id for pair in read}
    (tmp_path / "ids").write_text(f"{found['id']}\n")
    code, out, _ = knn_seq("delete", path, "--ids-from", tmp_path / "ids")
    assert out == "1 sentence pair deleted; 121 are left.\n"
    assert "train again" not in knn_seq("info", path)[1]
    assert knn_seq("compact", path, "-q")[0] == 0
    code, out, _ = knn_seq("export", path)
    assert len(out.splitlines()) == 121
    assert knn_seq("merge", path, number_store.path, "--output", tmp_path / "both", "-q")[0] == 0
    assert Datastore(tmp_path / "both").manifest.counts.sentences == 241
    assert knn_seq("delete", path)[0] == 2
    (tmp_path / "more.tsv").write_text("".join(f"{9 + n} 8 {9 + n}\t{50 - n} 41\n" for n in range(40)))
    assert knn_seq("add", path, "--corpus", tmp_path / "more.tsv", "--device", "cpu")[0] == 0
    assert "train again (`knn-seq train`)" in knn_seq("info", path)[1]
