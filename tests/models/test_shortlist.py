"""Shortlists: their file, the distribution that they leave, and a model that decodes from it."""

from __future__ import annotations

import struct
from dataclasses import replace

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from knn_seq.errors import DamagedFile, NotFound
from knn_seq.models import Step, TokenPair, load_model
from knn_seq.models.firefox_network import find_model_folder
from knn_seq.models.firefox_network.shortlist_file import MAGIC, find_shortlist, read_shortlist
from knn_seq.models.shortlist import Columns, Shortlist
from knn_seq.settings import DecodingSettings, ModelSettings

SIZE = 32000
# Attention adds in another order step by step than under teacher forcing: of 8 bits some are then rounded otherwise.
TOLERANCE = {"float32": 2e-3, "int8": 0.3}
PATH = find_shortlist(find_model_folder("pt-en"))
SENTENCES = [
    "O trem para o Porto sai às oito horas da manhã.",
    "Você pode me dizer onde fica a farmácia mais próxima?",
    "Quero aprender a tocar violão.",
    "No princípio criou Deus os céus e a terra.",
    "A biblioteca fica ao lado da prefeitura, que está fechada aos domingos e nos feriados.",
]


@pytest.fixture(scope="module", params=["float32", "int8"])
def model(request):
    return load_model(ModelSettings("firefox:pt-en", dtype=request.param, shortlist=True, device="cpu"))


def shortlist_bytes(lists, frequent=2, magic=MAGIC):
    offsets = np.cumsum([0, *map(len, lists)])
    targets = [token for tokens in lists for token in tokens]
    header = struct.pack("<6Q", magic, 0, frequent, 50, len(offsets), len(targets))
    return header + offsets.astype("<u8").tobytes() + np.array(targets, "<u4").tobytes()


@settings(max_examples=30, deadline=None)
@given(st.lists(st.sets(st.integers(0, 19), max_size=5), min_size=1, max_size=12), st.integers(0, 4), st.data())
def test_a_file_is_read_as_it_was_written(tmp_path_factory, lists, frequent, data):
    path = tmp_path_factory.mktemp("shortlist") / "lex.s2t.bin"
    path.write_bytes(shortlist_bytes([sorted(tokens) for tokens in lists], frequent))
    shortlist = read_shortlist(path, 20)
    source = data.draw(st.lists(st.integers(0, len(lists) - 1), max_size=6))
    expected = set(range(frequent)).union(*(lists[token] for token in source), {7})
    assert shortlist.of(source, others=[7]).tolist() == sorted(expected)


def test_the_real_file():
    data = PATH.read_bytes()
    shortlist = read_shortlist(PATH, SIZE)
    assert struct.unpack("<Q", data[:8])[0] == MAGIC
    assert len(shortlist.offsets) == SIZE + 1
    assert len(shortlist.frequent) == 50
    sizes = np.diff(shortlist.offsets)
    assert sizes.max() == 50
    assert sizes.min() >= 0
    for token in range(0, SIZE, 1000):
        its = shortlist.targets[shortlist.offsets[token] : shortlist.offsets[token + 1]]
        assert (np.diff(its) > 0).all()
    # Its checksum mixes one number of 8 bytes after the other into what is there.
    checksum, mask = 0, (1 << 64) - 1
    for number in np.frombuffer(data[16 : len(data) // 8 * 8], "<u8").tolist():
        checksum ^= (number + 0x9E3779B9 + (checksum << 6) + (checksum >> 2)) & mask
        checksum &= mask
    assert checksum == struct.unpack("<Q", data[8:16])[0]


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"abc",
        shortlist_bytes([[1], [2]], magic=5),
        shortlist_bytes([[1], [2]])[:-1],
        shortlist_bytes([[1], [2]]) + b"x",
        shortlist_bytes([[1], [20]]),
        shortlist_bytes([[1], [2]])[:48] + struct.pack("<3Q", 0, 9, 2) + struct.pack("<2I", 1, 2),
    ],
)
def test_a_damaged_file_is_refused(tmp_path, data):
    path = tmp_path / "lex.s2t.bin"
    path.write_bytes(data)
    with pytest.raises(DamagedFile, match="shortlist"):
        read_shortlist(path, 20)


def test_a_model_without_one_says_so(tmp_path):
    folder = find_model_folder("pt-en")
    for file in folder.iterdir():
        if not file.name.startswith("lex"):
            (tmp_path / file.name).symlink_to(file)
    assert load_model(ModelSettings(f"firefox:{tmp_path}", device="cpu")).shortlist is None
    with pytest.raises(NotFound, match="no shortlist"):
        load_model(ModelSettings(f"firefox:{tmp_path}", shortlist=True))


def test_columns_are_the_union_and_ban_what_is_not_a_sentence_s_own():
    lists = [torch.tensor([0, 3, 5]), torch.tensor([0, 1, 5, 9])]
    columns = Columns.of(lists, 12)
    assert columns.vocabulary.tolist() == [0, 1, 3, 5, 9]
    for row, tokens in zip(columns.banned, lists, strict=True):
        assert columns.vocabulary[row == 0].tolist() == tokens.tolist()
        assert (row[row != 0] == -torch.inf).all()


def test_each_step_is_a_softmax_over_the_sentence_s_own_shortlist(model):
    sources, tolerance = model.tokenizer.encode_sources(SENTENCES), TOLERANCE[model.settings.dtype]
    steps = []

    def look(step):
        steps.append(step.log_probs.clone())
        neighbours = torch.tensor([[5, 31_000, 31_999, 31_000]]).expand(len(step.queries), -1)
        steps.append(step.log_probs_of(neighbours))
        return steps[-2].clone()

    outputs = model.generate(sources, DecodingSettings(beam_size=1, max_length=6), look)
    complete = load_model(ModelSettings("firefox:pt-en", dtype=model.settings.dtype, shortlist=False, device="cpu"))
    for number, source in enumerate(sources):
        target = outputs[number][0].tokens
        scored = complete.score([TokenPair(source, target)])
        allowed = model.shortlist.of(source)
        for place in range(len(target)):
            expected = torch.full((SIZE,), -torch.inf)
            expected[allowed] = scored.log_probs[place, allowed].log_softmax(0)
            torch.testing.assert_close(steps[2 * place][number], expected, atol=tolerance, rtol=1e-3)
            shift = scored.log_probs[place, allowed].logsumexp(0)
            real = scored.log_probs[place, [5, 31_000, 31_999, 31_000]] - shift
            torch.testing.assert_close(steps[2 * place + 1][number], real, atol=tolerance, rtol=1e-3)


def test_scores_of_given_outputs_are_those_of_decoding(model):
    sources = model.tokenizer.encode_sources(SENTENCES)
    outputs = model.generate(sources, DecodingSettings(beam_size=3, max_length=30))
    for source, (best, *_) in zip(sources, outputs, strict=True):
        log_probs = model.score([TokenPair(source, best.tokens)]).log_probs
        total = log_probs.gather(1, torch.tensor(best.tokens).unsqueeze(1)).sum().item()
        assert total == pytest.approx(best.score, abs=2 * TOLERANCE[model.settings.dtype])


@pytest.mark.parametrize("beams", [1, 4])
def test_a_batch_writes_what_its_sentences_write(model, beams):
    sources = model.tokenizer.encode_sources(SENTENCES)
    decoding = DecodingSettings(beam_size=beams, max_length=40)
    together = [output[0].tokens for output in model.generate(sources, decoding)]
    assert together == [model.generate([source], decoding)[0][0].tokens for source in sources]


def test_a_step_tells_what_a_shortlist_has_left_out():
    log_probs, tokens = torch.tensor([[-1.0, -torch.inf, -3.0]]), torch.tensor([[2, 1]])
    without = Step(torch.zeros(1, 2), log_probs, torch.zeros(1, 0), torch.zeros(1))
    assert without.log_probs_of(tokens).tolist() == [[-3.0, -torch.inf]]
    complete = replace(without, left_out=lambda rows, tokens: -10.0 * tokens)
    assert complete.log_probs_of(tokens).tolist() == [[-3.0, -10.0]]


def test_unknown_source_tokens_leave_the_frequent_ones():
    shortlist = Shortlist(np.array([0, 1]), np.array([4]), np.array([0, 2]), 6)
    assert shortlist.of([99, -1]).tolist() == [0, 2]
    assert shortlist.of([0]).tolist() == [0, 2, 4]
