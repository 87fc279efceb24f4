"""What would run on a GPU: every tensor on one device, and the host waits for it only where docs/gpu.md says."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest
import torch
from fake_gpu import FakeGpu
from tiny_models import DECODER_ONLY, NETWORKS, NumberTokenizer, make_network, number_pairs

from knn_seq.combine import COMBINERS, CombinerInputs, mix_retrieved
from knn_seq.combine.trained import NetworkShape, TrainedCombiner
from knn_seq.decoding.step import KnnBatch
from knn_seq.index import INDEXES, Neighbours
from knn_seq.models import Source, TokenPair
from knn_seq.models.decoder_only import DecoderOnlyModel
from knn_seq.models.encoder_decoder import EncoderDecoderModel
from knn_seq.retrieve.full import FullRetriever
from knn_seq.retrieve.memory import MemoryRetriever
from knn_seq.retrieve.subset import SubsetRetriever
from knn_seq.sentences.base import sentence_search
from knn_seq.settings import DecodingSettings, ModelSettings, SearchSettings
from knn_seq.storage.ragged import Ragged
from knn_seq.storage.translation_memory import TranslationMemory
from knn_seq.subset import PaddedKeys, SentenceKeys, SubsetIndex

PAGE = Path(__file__).parent.parent / "docs" / "gpu.md"
GPU = "cuda:0"
ROWS, K, DIMENSION = 6, 4, 32
SETTINGS = SearchSettings(k=K)
# Where the host waits: "file:function".
FULL_SEARCH = {"index/base.py:_prepared", "index/torch.py:_certain", "retrieve/full.py:retrieve"}
EQUAL_PREFIXES = {"decoding/step.py:distinct_prefixes"}
KSTER = {"combine/kster.py:_read_keys"}
FSMT = {"models/network.py:keys"}  # the network of Transformers looks for padding
PROMPTS = {"models/prompt_cache.py:reuse"}
CHOICE = {1: {"models/search/step_by_step.py:choose"}, 3: {"models/search/beam.py:choose"}}  # by the number of beams


@pytest.fixture
def gpu():
    with FakeGpu() as fake:
        yield fake


def model_on_gpu(kind="marian", dtype="float32"):
    network, settings = make_network(kind), ModelSettings(name=f"tiny:{kind}", dtype=dtype, device=GPU)
    if kind in DECODER_ONLY:
        return DecoderOnlyModel(network, NumberTokenizer(), "numbers", settings)
    return EncoderDecoderModel(network, NumberTokenizer(), "numbers", settings, [network.config.decoder_start_token_id])


def on_gpu(*shape, dtype=torch.float32):
    return torch.zeros(shape, dtype=dtype, device=GPU)


def test_devices_are_not_mixed_and_waiting_is_noticed(gpu):
    matrix = on_gpu(3, 4)
    with pytest.raises(RuntimeError, match="device"):
        matrix @ torch.ones(4, 5)
    assert (matrix @ torch.ones(4, 5).to(GPU))[1:, None].shape == (2, 1, 5)
    assert torch.tensor([5, 6]).tolist() == [5, 6]
    assert gpu.waits == []
    waiting = (
        lambda: matrix.sum().item(),
        lambda: matrix.tolist(),
        lambda: matrix.cpu(),
        lambda: matrix[matrix > 0],
        lambda: matrix.nonzero(),
        lambda: matrix.unique(),
        lambda: bool((matrix > 0).any()),
    )
    for number, wait in enumerate(waiting, 1):
        wait()
        assert len(gpu.waits) == number


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
@pytest.mark.parametrize("kind", NETWORKS)
def test_keys(gpu, kind, dtype):
    keys = model_on_gpu(kind, dtype).keys([TokenPair([4, 5, 2], [6, 2]), TokenPair([4, 5, 7, 2], [6, 9, 2])])
    assert (keys.device.type, keys.shape) == ("cuda", (5, DIMENSION))
    assert set(gpu.waits) == (FSMT if kind == "fsmt" else set())


def combiner_of(name):
    kind = COMBINERS.get(name)
    if not issubclass(kind, TrainedCombiner):
        return kind()
    combiner = kind(NetworkShape(K, DIMENSION))
    for module in combiner.network.modules():  # a fake tensor that was looked at cannot be moved in its place
        for name, parameter in module.named_parameters(recurse=False):
            setattr(module, name, torch.nn.Parameter(parameter.detach().to(GPU), requires_grad=False))
        for name, buffer in module.named_buffers(recurse=False):
            setattr(module, name, buffer.to(GPU))
    combiner.parameters = list(combiner.network.parameters())
    return combiner


def inputs(best):
    values = on_gpu(ROWS, K, dtype=torch.int64)
    neighbours = Neighbours(on_gpu(ROWS, K), values, values)
    return CombinerInputs(on_gpu(ROWS, DIMENSION), neighbours, on_gpu(ROWS, K), on_gpu(ROWS, best))


@pytest.mark.parametrize("name", COMBINERS.names())
def test_combiners_and_the_mixture(gpu, name):
    combiner = combiner_of(name)
    if name == "kster":
        combiner._keys = np.zeros((3, DIMENSION), np.float32)
    given = inputs(combiner.best_log_probs)
    combination = combiner.combine(given, SETTINGS)
    changes = mix_retrieved(on_gpu(ROWS, K), given.neighbours, combination)
    assert {part.device.type for part in changes} == {"cuda"}
    assert set(gpu.waits) == (KSTER if name == "kster" else set())


@pytest.mark.parametrize("metric", ["l2", "ip", "cosine"])
def test_full_search(gpu, metric):
    index = INDEXES.get("torch")(DIMENSION, metric, device=GPU)
    for _ in range(2):  # more than one block
        index.add(np.ones((40_000, DIMENSION), np.float32))
    retriever = FullRetriever(index, np.zeros(80_000, np.int32))
    gpu.waits.clear()
    found = retriever.retrieve(on_gpu(ROWS, DIMENSION), torch.zeros(ROWS, dtype=torch.int64), SETTINGS)
    assert {part.device.type for part in (found.distances, found.values, found.ids)} == {"cuda"}
    assert set(gpu.waits) == FULL_SEARCH


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16])
@pytest.mark.parametrize("metric", ["l2", "ip", "cosine"])
def test_search_of_some_keys(gpu, metric, dtype):
    sizes = (100, 0, 7)
    parts = [SentenceKeys(on_gpu(n, DIMENSION, dtype=dtype), *[on_gpu(n, dtype=torch.int64)] * 2) for n in sizes]
    padded = PaddedKeys(parts, metric)
    found = padded.search(on_gpu(ROWS, DIMENSION), torch.tensor([0, 0, 1, 1, 2, 2]), K)
    assert {part.device.type for part in (found.distances, found.values, found.ids)} == {"cuda"}
    assert gpu.waits == []


class ListedSentences:
    """The same sentences for every source."""

    def nearest(self, sources, n):
        return np.tile(np.arange(n), (len(sources), 1))


def retriever_of(name, model):
    pairs = number_pairs(12)
    texts = [tuple(" ".join(map(str, side[:-1])) for side in pair) for pair in pairs]
    if name == "memory":
        memory = TranslationMemory(texts)
        search = sentence_search("bm25", model)
        search.fit([Source(source, ()) for source, _ in texts])
        return MemoryRetriever(memory, search, model)
    tokens = np.array([token for _, target in pairs for token in target], np.int32)
    keys = np.ones((len(tokens), DIMENSION), np.float16)
    if name == "full":
        index = INDEXES.get("torch")(DIMENSION, device=GPU)
        index.add(keys)
        return FullRetriever(index, tokens)
    values = Ragged(tokens, np.cumsum([0, *(len(target) for _, target in pairs)]))
    return SubsetRetriever(ListedSentences(), SubsetIndex(keys, values), model.device)


@pytest.mark.parametrize("beams", [1, 3])
@pytest.mark.parametrize("kind", ["marian", "m2m100", "t5", "gpt2"])
def test_own_search(gpu, kind, beams):
    model = model_on_gpu(kind)
    gpu.waits.clear()
    decoding = DecodingSettings(beam_size=beams, max_length=5)
    outputs = model.generate([[4, 5, 2], [5, 6, 7, 2]], decoding)
    assert len(outputs) == 2
    assert set(gpu.waits) == CHOICE[beams] | (PROMPTS if kind == "gpt2" else set())


@pytest.mark.parametrize("beams", [1, 3])
@pytest.mark.parametrize("combiner", ["fixed", "learned"])
@pytest.mark.parametrize("retriever", ["full", "subset", "memory"])
def test_own_search_with_neighbours(gpu, retriever, combiner, beams):
    model = model_on_gpu()
    sources = [Source(" ".join(map(str, source[:-1])), source) for source, _ in number_pairs(2)]
    hook = KnnBatch(retriever_of(retriever, model), combiner_of(combiner), SETTINGS, sources)
    gpu.waits.clear()
    model.generate([source.tokens for source in sources], DecodingSettings(beam_size=beams, max_length=5), hook)
    assert set(gpu.waits) == CHOICE[beams] | (FULL_SEARCH | EQUAL_PREFIXES if retriever == "full" else set())


def test_the_documentation_names_all_places_and_no_others():
    found = re.findall(r"^\| `([\w/]+\.py:\w+)` \|", PAGE.read_text(encoding="utf-8"), re.MULTILINE)
    expected = FULL_SEARCH | EQUAL_PREFIXES | KSTER | FSMT | PROMPTS | CHOICE[1] | CHOICE[3]
    assert sorted(found) == sorted(expected)
