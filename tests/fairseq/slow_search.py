"""kNN-MT by the book: complete prefixes, dense distributions, one sentence at a time."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import torch

END, PADDING = 2, 1

Distribution = Callable[[list[int]], np.ndarray]


class SlowModel:
    """log p_MT and the query after a prefix, from fairseq's model under teacher forcing."""

    def __init__(self, network):
        self.network = network.eval()
        self.queries = []
        network.decoder.layers[-1].fc1.register_forward_pre_hook(lambda module, inputs: self.queries.append(inputs[0]))

    @torch.no_grad()
    def __call__(self, source: Sequence[int], prefix: Sequence[int]):
        self.queries.clear()
        encoded = self.network.encoder(torch.tensor([source]), src_lengths=torch.tensor([len(source)]))
        output = self.network.decoder(torch.tensor([[END, *prefix]]), encoder_out=encoded)
        log_probs = torch.log_softmax(output[0][0, -1].double(), dim=-1)
        return log_probs.exp().numpy(), self.queries[-1][-1, 0].double().numpy()


def neighbour_distribution(query, keys, values, k, temperature, size):
    """p_kNN of a query, (size,)."""
    distances = ((keys.astype(np.float64) - query) ** 2).sum(axis=1)
    nearest = np.argsort(distances, kind="stable")[:k]
    similarities = np.exp(-(distances[nearest] - distances[nearest].min()) / temperature)
    return np.bincount(values[nearest], similarities / similarities.sum(), minlength=size)


def mixture(model: SlowModel, source, keys, values, k, temperature, weight) -> Distribution:
    """p = λ·p_kNN + (1−λ)·p_MT after any prefix."""

    def probabilities(prefix):
        p_mt, query = model(source, prefix)
        return weight * neighbour_distribution(query, keys, values, k, temperature, len(p_mt)) + (1 - weight) * p_mt

    return probabilities


def slow_beam_search(probabilities: Distribution, beam: int, longest: int) -> list[tuple[list[int], float]]:
    """The outputs in fairseq's order with their scores: the mean log-probability, the end of the sentence included."""
    open_beams: list[tuple[list[int], float]] = [([], 0.0)]
    finished: list[tuple[list[int], float]] = []
    for step in range(longest + 1):
        candidates = []
        for prefix, score in open_beams:
            with np.errstate(divide="ignore"):
                log_probs = np.log(probabilities(prefix))
            log_probs[PADDING] = -np.inf
            if step == 0:
                log_probs[END] = -np.inf
            if step == longest:
                log_probs[np.arange(len(log_probs)) != END] = -np.inf
            candidates += [(prefix, token, score + log_probs[token]) for token in range(len(log_probs))]
        candidates.sort(key=lambda candidate: -candidate[2])
        for prefix, token, score in candidates[:beam]:
            if token == END and len(finished) < beam and np.isfinite(score):
                finished.append((prefix, score / (len(prefix) + 1)))
        if len(finished) >= beam:
            break
        going_on = [candidate for candidate in candidates[: 2 * beam] if candidate[1] != END]
        open_beams = [([*prefix, token], score) for prefix, token, score in going_on[:beam]]
    return sorted(finished, key=lambda output: -output[1])
