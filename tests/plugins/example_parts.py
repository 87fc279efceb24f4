"""Parts of another package, a class each: a combiner, a corpus format that is XML, a document format, an index."""

from __future__ import annotations

import re
import xml.etree.ElementTree as ET
from itertools import islice

import torch

from knn_seq.combine import Combination, Combiner
from knn_seq.corpus import CorpusReader, make_pair
from knn_seq.documents import Segment
from knn_seq.documents.spliced import SplicedDocument
from knn_seq.index import SearchIndex
from knn_seq.registry import Option


class CertaintyCombiner(Combiner):
    """λ falls with the model's certainty; a neighbour counts by its distance, its p_MT and the query's own length."""

    options = {"exponent": Option(1.0, "how fast λ falls with the model's certainty", float, 0.0)}
    best_log_probs = 2

    def _combine(self, inputs, settings):
        margin = (inputs.best_log_probs[:, 0].exp() - inputs.best_log_probs[:, 1].exp()).clamp(0, 1)
        scale = inputs.queries.float().norm(dim=1, keepdim=True).clamp(min=1e-3)
        logits = -inputs.neighbours.distances / (settings.temperature * scale) + 0.1 * inputs.value_log_probs
        logits = logits.masked_fill(~inputs.neighbours.found, -torch.inf)
        return Combination((1 - margin) ** self.option_values["exponent"], torch.softmax(logits, dim=1))


class PairsXmlReader(CorpusReader):
    """`<pairs><pair><pt>…</pt><en>…</en></pair>…</pairs>`, read unit by unit."""

    suffixes = (".pairs.xml",)
    options = {"source": Option("pt", "the element of the source", str), "target": Option("en", "... target", str)}

    def pairs(self, start=0):
        def units():
            number = 0
            for _, element in ET.iterparse(self.paths[0]):
                if element.tag == "pair":
                    number += 1
                    sides = [element.findtext(self.option_values[side]) or "" for side in ("source", "target")]
                    yield make_pair(*sides, f"unit {number}", element.get("id"))
                    element.clear()

        return islice(units(), start, None)


class KeyedLinesDocument(SplicedDocument):
    """Lines of a key, an equals sign and a value."""

    suffixes = (".keyed",)
    options = {"sign": Option("=", "what stands behind a key", str)}

    def _find(self):
        matches = re.finditer(rf"^(.+?){re.escape(self.option_values['sign'])}(.+)$", self.text, re.MULTILINE)
        return [Segment((match[2],), match[1], start=match.start(2), end=match.end(2)) for match in matches]

    def _escaped(self, text, segment):
        return text.replace("\n", " ")


class CellsIndex(SearchIndex):
    """Exact search among keys whose first coordinate lies in the same or in a near cell."""

    declared_options = {
        "cells": Option(4, "that the first coordinate is divided into", int, 1, when_built=True),
        "visited": Option(1, "cells that a query visits", int, 1),
    }

    def __init__(self, dimension, metric="l2", recipe=None, **options):
        super().__init__(dimension, metric, recipe or "cells", **options)
        self.keys, self.ids = torch.empty(0, dimension), torch.empty(0, dtype=torch.int64)

    def __len__(self):
        return len(self.ids)

    @property
    def memory(self):
        return self.keys.nbytes + self.ids.nbytes

    def _train(self, sample):
        pass

    def _add(self, keys, ids):
        self.keys, self.ids = torch.cat([self.keys, keys]), torch.cat([self.ids, ids])

    def _search(self, queries, k, options):
        cells, visited = options["cells"], options["visited"]
        edges = torch.quantile(self.keys[:, 0], torch.linspace(0, 1, cells + 1)[1:-1])
        of_keys, of_queries = (torch.bucketize(part[:, 0].contiguous(), edges) for part in (self.keys, queries))
        distances = torch.cdist(queries, self.keys).square()
        distances[(of_keys - of_queries[:, None]).abs() >= visited] = torch.inf
        near = distances.topk(k, largest=False)
        return near.values, self.ids[near.indices].masked_fill(near.values.isinf(), -1)

    def _save(self, path):
        torch.save({"keys": self.keys, "ids": self.ids}, path)

    def _load(self, path):
        saved = torch.load(path)
        self.keys, self.ids = saved["keys"], saved["ids"]
