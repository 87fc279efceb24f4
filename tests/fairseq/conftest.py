"""A toy language, two checkpoints that fairseq has trained on it, and a datastore of another domain."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from fairseq_commands import fairseq, load_network, train
from fairseq_files import EOS, words, write_data_bin

from knn_seq.datastore import Datastore

HAS_FAIRSEQ = importlib.util.find_spec("fairseq_cli") is not None
MISSING = "fairseq is not importable here; `make fairseq test-fairseq` tests it in an environment that has fairseq"

WITHOUT_FAIRSEQ = ("test_data_bin.py", "test_data_bin_build.py")  # what reads fairseq's files and does not need it
WORDS = 24
SPECIAL = range(0, WORDS, 3)  # words that the datastore's domain translates in its own way


def pytest_terminal_summary(terminalreporter):
    if not HAS_FAIRSEQ:
        terminalreporter.write_line(f"The fairseq plug-in was NOT tested: {MISSING}.", yellow=True, bold=True)


def pytest_collection_modifyitems(items):
    for item in items:
        if item.path.parent == Path(__file__).parent:
            item.add_marker(pytest.mark.filterwarnings("ignore"))  # fairseq is old, and much has been deprecated since
            if not HAS_FAIRSEQ and item.path.name not in WITHOUT_FAIRSEQ:
                item.add_marker(pytest.mark.skip(reason=MISSING))


def write_side_by_side(folder: Path, name: str, generator, pairs: int, special: float) -> None:
    """Sentences of 1 to 14 words; `special` is the share of sentences from the datastore's domain."""
    with open(folder / f"{name}.xx", "w") as sources, open(folder / f"{name}.yy", "w") as targets:
        for _ in range(pairs):
            words = generator.integers(0, WORDS, generator.integers(1, 15))
            domain = "s" if generator.random() < special else "t"
            print(*(f"w{word}" for word in words), file=sources)
            print(*(f"{domain if word in SPECIAL else 't'}{word}" for word in words), file=targets)


@pytest.fixture(scope="session")
def toy(tmp_path_factory):
    """The folders `data` (binarized, with a test set) and `domain` (the datastore's text), and the checkpoints."""
    folder = tmp_path_factory.mktemp("toy")
    generator = np.random.default_rng(3)
    write_side_by_side(folder, "train", generator, 500, 0.2)
    write_side_by_side(folder, "test", generator, 12, 1.0)
    write_side_by_side(folder, "domain", generator, 120, 1.0)
    data, domain = folder / "data", folder / "domain-data"
    languages = ["--source-lang", "xx", "--target-lang", "yy"]
    fairseq("preprocess", *languages, "--trainpref", folder / "train", "--testpref", folder / "test", "--destdir", data)
    dictionaries = ["--srcdict", data / "dict.xx.txt", "--tgtdict", data / "dict.yy.txt"]
    fairseq("preprocess", *languages, "--trainpref", folder / "domain", *dictionaries, "--destdir", domain)
    models = [train(data, folder / f"model{seed}", seed, epochs) for seed, epochs in ((1, 16), (2, 10))]
    test = [line.split() for line in (folder / "test.xx").read_text().splitlines()]
    return SimpleNamespace(folder=folder, data=data, domain=domain, models=models, test=test)


@pytest.fixture(scope="session")
def corpus(tmp_path_factory):
    """Random pairs as a data-bin folder and as text."""
    folder = tmp_path_factory.mktemp("corpus")
    generator = np.random.default_rng(5)
    pairs = [
        (
            [*generator.integers(4, 37, generator.integers(3, 8)).tolist(), EOS],
            [*generator.integers(4, 41, generator.integers(3, 8)).tolist(), EOS],
        )
        for _ in range(60)
    ]
    write_data_bin(folder / "data-bin", pairs)
    write_data_bin(folder / "data-bin", pairs[:9], "valid")
    with open(folder / "train.tsv", "w") as file:
        for pair in pairs:
            print(*words(pair), sep="\t", file=file)
    return folder, pairs


@pytest.fixture(scope="session")
def dictionaries(toy):
    from fairseq.data import Dictionary

    return [Dictionary.load(str(toy.data / f"dict.{side}.txt")) for side in ("xx", "yy")]


@pytest.fixture
def networks(toy):
    """fairseq's own models, loaded anew: a test may hang hooks on them."""
    return [load_network(path, data=str(toy.data)) for path in toy.models]


@pytest.fixture(scope="session")
def build_store(toy, tmp_path_factory):
    """Build a datastore of the other domain with a checkpoint, without fairseq; returns its folder."""
    made: dict[str, Path] = {}

    def build(number: int = 0, checkpoint: Path | None = None, **settings) -> Path:
        name = f"fairseq:{checkpoint or toy.models[number]}"
        key = f"{name} {sorted(settings.items())}"
        if key not in made:
            chosen = {"index_recipe": "Flat", "workers": 1} | settings
            path = tmp_path_factory.mktemp("store") / "store"
            Datastore.build(path, name, toy.domain, **chosen)
            made[key] = path
        return made[key]

    return build
