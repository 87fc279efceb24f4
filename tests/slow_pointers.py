"""RetoMaton as its paper has it, a token at a time: the reference for pointers and clusters."""

from __future__ import annotations

import numpy as np

from knn_seq.combine import mix_vocabulary
from knn_seq.decoding.clusters import open_clusters
from knn_seq.decoding.step import combiner_inputs
from knn_seq.index import Neighbours
from knn_seq.models import TokenPair


class SlowPointers:
    """RetoMaton for one sentence, prefix by prefix, with lists and sets."""

    def __init__(self, translator, source_tokens, options):
        self.search, _ = translator.settings(options)
        self.model, self.store, self.source = translator.model, translator.store, list(source_tokens)
        self.agreement = 0.7 if self.search.pointer_agreement is None else self.search.pointer_agreement
        self.keys = self.store.keys.astype(np.float64)
        self.values = self.store.values.items.tolist()
        self.sentence = [number for number, target in enumerate(self.store.values) for _ in target]
        path = self.store.path / "clusters.h5"
        self.cluster = open_clusters(self.store).assigned.tolist() if path.exists() else None
        self.known = {}

    def state(self, prefix):
        """Query, log p_MT, all entries of a prefix's state, its k nearest with their distances, and if it searched."""
        prefix = tuple(prefix)
        if prefix not in self.known:
            keys, log_probs = self.model.score([TokenPair(self.source, [*prefix, 2])])
            query = keys[-1].double().numpy()
            distances = ((self.keys - query) ** 2).sum(axis=1)
            entries = self.followed(prefix)
            searched = entries is None
            if searched:
                entries = np.argsort(distances, kind="stable")[: self.search.k].tolist()
            nearest = sorted(entries, key=lambda entry: distances[entry])[: self.search.k]
            self.known[prefix] = keys[-1:], log_probs[-1:], entries, [(n, distances[n]) for n in nearest], searched
        return self.known[prefix]

    def followed(self, prefix):
        if not prefix:
            return None
        before = self.state(prefix[:-1])[2]
        pointers = []
        for entry in before:
            continues = entry + 1 < len(self.values) and self.sentence[entry + 1] == self.sentence[entry]
            if self.values[entry] == prefix[-1] and continues:
                pointers.append(entry + 1)
        if len(pointers) < self.search.pointers:
            return None
        tokens = [self.values[pointer] for pointer in pointers]
        if max(tokens.count(token) for token in tokens) < self.agreement * len(tokens):
            return None
        if self.search.clusters:
            wanted = {self.cluster[pointer] for pointer in pointers}
            pointers += [n for n in range(len(self.values)) if self.cluster[n] in wanted and n not in pointers]
        return pointers

    def neighbours(self, prefix):
        nearest = self.state(prefix)[3]
        found = Neighbours.none(1, self.search.k)
        for place, (entry, distance) in enumerate(nearest):
            found.ids[0, place], found.values[0, place] = entry, self.values[entry]
            found.distances[0, place] = float(distance)
        return found

    def log_probs(self, prefix, combiner):
        query, log_probs, *_ = self.state(prefix)
        found = self.neighbours(prefix)
        inputs = combiner_inputs(combiner.best_log_probs, query, found, log_probs)
        return mix_vocabulary(log_probs.clone(), found, combiner.combine(inputs, self.search))[0]
