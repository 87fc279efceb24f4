"""What a translation memory, which carries no settings, is searched with."""

from __future__ import annotations

from knn_seq.combine import COMBINERS
from knn_seq.combine.trained import TrainedCombiner
from knn_seq.decoding import KnnDecoder
from knn_seq.likelihood import calibrate
from knn_seq.settings import BuildSettings, override
from knn_seq.train.general import general_sentences
from knn_seq.train.run import examples_for, train

# Measured in seconds, and for few keys, of which far neighbours are no use.
SENTENCES, GENERAL = 40, 40  # each computes the keys of the pairs that it finds
K = (2, 4, 8, 16)
FLOOR = 0.05


def measure_memory(decoder: KnnDecoder, combiner: str | None) -> None:
    """Train a combiner for a translation memory, or measure settings for one that has nothing to train.

    Args:
        decoder: Searches the memory, with what is found here from now on.
        combiner: The one that is wanted; None: the one that is better.
    """
    settings = decoder.settings()
    if not settings.weight:
        return
    if combiner is None or issubclass(COMBINERS.get(combiner), TrainedCombiner):
        general = general_sentences(decoder.model)[:GENERAL]
        examples = examples_for(decoder, settings, general=general, sentences=SENTENCES, k=max(K))
        if examples.usable:
            made = train(examples, settings, combiner or BuildSettings.combiner, max(K))
            if combiner is not None or made.better_than_fixed:
                decoder.use_combiner(made.settings, made.combiner)
                decoder.memory_settings = made.settings
                return
    measured = calibrate(decoder, settings, SENTENCES, K, FLOOR)
    decoder.memory_settings = override(decoder.memory_settings, measured)
