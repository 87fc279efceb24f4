"""COMET with the real library and a tiny checkpoint of random weights; see `make comet`."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from knn_seq.errors import DamagedFile, KnnSeqError, MissingLibrary, NotFound
from knn_seq.metrics import METRICS
from knn_seq.metrics.bootstrap import paired_bootstrap
from knn_seq.metrics.comet import PYTHON, Comet

SCRIPT = Path(__file__).parent / "tiny_comet.py"
OWN = Path(__file__).parents[2] / ".venv-comet" / "bin" / "python"

SOURCES = ["o gato está na casa .", "o cão está na casa .", "o gato", "a casa", "o cão na casa", "está na casa ."]
REFERENCES = ["the cat is in the house .", "the dog is in the house .", "the cat", "the house", "a dog", "is in ."]
BASE = ["a cat is on the house .", "dog in house", "the dog", "the house", "the dog in a house", ""]
KNN = ["the cat is in the house .", "the dog is in house .", "the dog", "verily a house", "dog", "is in ."]


@pytest.fixture(scope="module")
def python():
    """A Python that has COMET."""
    given = os.environ.get(PYTHON) or (str(OWN) if OWN.exists() else None)
    try:
        comet = Comet(python=given)
        return comet.version and comet.python
    except MissingLibrary as error:
        pytest.skip(f"COMET IS NOT TESTED: {error}  `make comet` makes one.")


@pytest.fixture(scope="module")
def tiny(python, tmp_path_factory):
    """The folder of a checkpoint, and what COMET's own predict() says of each sentence of both systems."""
    folder = tmp_path_factory.mktemp("comet") / "tiny"
    columns = zip(SOURCES * 2, BASE + KNN, REFERENCES * 2, strict=True)
    segments = [{"src": source, "mt": output, "ref": reference} for source, output, reference in columns]
    done = subprocess.run([python, SCRIPT, folder], input=json.dumps(segments), capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    scores = json.loads(done.stdout)
    return folder, scores[: len(SOURCES)], scores[len(SOURCES) :]


def test_scores_are_comets_own(python, tiny, monkeypatch):
    """Also with another Python's libraries on the path, and with a checkpoint that is named from here."""
    folder, base, knn = tiny
    assert len(set(base + knn)) > 8  # the tiny network tells sentences apart
    monkeypatch.setenv("PYTHONPATH", str(Path(pytest.__file__).parents[1]))
    monkeypatch.chdir(folder)
    metric = METRICS.get("comet")(model="checkpoints/model.ckpt", python=python)
    metric.require()
    found = metric.scores({"base": BASE, "knn": KNN, "same": BASE}, REFERENCES, SOURCES)
    assert list(found) == ["base", "knn", "same"]
    assert found["base"].value == pytest.approx(sum(base) / len(base), abs=1e-5)
    assert found["knn"].value == pytest.approx(sum(knn) / len(knn), abs=1e-5)
    assert found["base"].p_value is None
    assert found["knn"].p_value == pytest.approx(paired_bootstrap(base, knn), abs=2e-3)
    assert found["same"] == found["base"]._replace(p_value=1.0)
    assert found["knn"].signature == f"model:checkpoints/model.ckpt|version:{metric.version}"
    assert metric.version[0].isdigit()


def test_what_fails_there_is_one_sentence_here(python, tmp_path):
    (tmp_path / "checkpoints").mkdir()
    (tmp_path / "checkpoints" / "model.ckpt").write_text("no weights")
    (tmp_path / "hparams.yaml").write_text("class_identifier: regression_metric\n")
    with pytest.raises(KnnSeqError, match=r"COMET cannot score with .*UnpicklingError") as caught:
        Comet(str(tmp_path), python).scores({"base": BASE}, REFERENCES, SOURCES)
    assert "\n" not in str(caught.value)


def test_a_python_that_dies_is_one_sentence_too(tmp_path):
    with pytest.raises(KnnSeqError, match=r"COMET cannot score with wmt20-comet-da in .*No module named 'comet'"):
        Comet("wmt20-comet-da", str(with_version(tmp_path / "env"))).scores({"base": BASE}, REFERENCES, SOURCES)
    dying = tmp_path / "dying"
    dying.write_text('#!/bin/sh\ncase "$1" in -c) echo 9.8.7 ;; *) echo out of memory >&2; exit 137 ;; esac\n')
    dying.chmod(0o755)
    with pytest.raises(KnnSeqError, match=r"it ended with code 137: out of memory"):
        Comet("wmt20-comet-da", str(dying)).scores({"base": BASE}, REFERENCES, SOURCES)


def with_version(folder: Path, name: str = "python") -> Path:
    """A Python that has no COMET but says that it has: this one, with the library's description and no more."""
    library = folder / "library" / "unbabel_comet-9.8.7.dist-info"
    library.mkdir(parents=True)
    (library / "METADATA").write_text("Metadata-Version: 2.1\nName: unbabel-comet\nVersion: 9.8.7\n")
    python = folder / name
    python.write_text(f'#!/bin/sh\nPYTHONPATH="{library.parent}" exec "{sys.executable}" "$@"\n')
    python.chmod(0o755)
    return python


def command_in(folder: Path, head: str) -> None:
    folder.mkdir(exist_ok=True)
    (folder / "comet-score").write_text(f"{head}\nimport sys\n")
    (folder / "comet-score").chmod(0o755)


class TestWhereItIs:
    @pytest.fixture(autouse=True)
    def clean(self, monkeypatch, tmp_path):
        if shutil.which("comet-score", path=str(Path(sys.executable).parent)):
            pytest.skip("COMET is installed here, so it is found before all others.")
        monkeypatch.delenv(PYTHON, raising=False)
        monkeypatch.setenv("PATH", str(tmp_path / "bin"))

    def test_nowhere(self):
        with pytest.raises(MissingLibrary, match=r"There is no COMET: make an environment .* KNN_SEQ_COMET_PYTHON"):
            Comet().require()

    def test_a_python_without_it(self, monkeypatch, tmp_path):
        with pytest.raises(MissingLibrary, match="There is no COMET in"):
            Comet(python=sys.executable).require()
        monkeypatch.setenv(PYTHON, str(tmp_path / "nothing"))
        with pytest.raises(MissingLibrary, match=r"There is no COMET in .*nothing"):
            Comet().require()

    def test_the_variable_and_the_argument(self, monkeypatch, tmp_path):
        one, other = with_version(tmp_path / "one"), with_version(tmp_path / "other")
        monkeypatch.setenv(PYTHON, str(one))
        assert (Comet().python, Comet().version) == (str(one), "9.8.7")
        assert Comet(python=str(other)).python == str(other)

    @pytest.mark.parametrize("head", ["#!{}", "#! {} -I", "#!/bin/sh\n'''exec' \"{}\" \"$0\" \"$@\"\n' '''"])
    def test_the_command_tells(self, head, tmp_path):
        python = with_version(tmp_path / "env")
        command_in(tmp_path / "bin", head.format(python))
        metric = Comet()
        metric.require()
        assert (metric.python, metric.version) == (str(python), "9.8.7")

    def test_a_linked_command_tells_by_its_neighbour(self, tmp_path):
        python = with_version(tmp_path / "env")
        command_in(tmp_path / "env", "MZ")
        (tmp_path / "bin").mkdir()
        (tmp_path / "bin" / "comet-score").symlink_to(tmp_path / "env" / "comet-score")
        assert Comet().python == str(python)


def test_a_folder_stands_for_its_checkpoint(tmp_path, monkeypatch):
    (tmp_path / "tiny" / "checkpoints").mkdir(parents=True)
    (tmp_path / "tiny" / "hparams.yaml").write_text("")
    file = tmp_path / "tiny" / "checkpoints" / "model.ckpt"
    file.write_text("")
    monkeypatch.chdir(tmp_path)
    for name in (file, file.parents[1], "tiny", "tiny/checkpoints/model.ckpt"):
        assert Comet(str(name))._checkpoint == str(file)


@pytest.mark.parametrize("name", ["none.ckpt", "/no/such/folder", "empty", "bare.ckpt", "two words"])
def test_a_checkpoint_that_is_not_there_is_refused_before_anything_is_translated(name, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "empty").mkdir()
    (tmp_path / "bare.ckpt").write_text("")
    metric = Comet(name, python=str(with_version(tmp_path / "env")))
    with pytest.raises((NotFound, DamagedFile), match=r"There is no COMET checkpoint|no hparams.yaml") as caught:
        metric.require()
    assert name.split("/")[-1] in str(caught.value)


def test_a_name_is_left_to_the_hub(tmp_path):
    python = str(with_version(tmp_path / "env"))
    for name in ("Unbabel/wmt22-comet-da", "wmt20-comet-da"):
        Comet(name, python=python).require()
    assert Comet(python=python).model == "Unbabel/wmt22-comet-da"
