from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from knn_seq.combine import COMBINERS, Combiner
from knn_seq.datastore import Datastore
from knn_seq.fairseq.network import FairseqNetwork
from knn_seq.models import Source
from knn_seq.outage import Outage
from knn_seq.retrieve import RETRIEVERS, Retriever
from knn_seq.settings import SearchSettings, override
from knn_seq.steer import NeighbourSteer


@dataclass(frozen=True)
class Search:
    """How one model asks one datastore."""

    model: FairseqNetwork
    retriever: Retriever
    combiner: Combiner
    settings: SearchSettings
    outage: Outage = field(default_factory=Outage)

    @classmethod
    def open(cls, store: Datastore, model: FairseqNetwork, options: dict[str, Any]) -> Search:
        """With the datastore's own settings where the options leave them alone."""
        settings = override(store.search_settings, options)
        retriever = RETRIEVERS.get(settings.retriever).open(store, settings, model)
        return cls(model, retriever, COMBINERS.get(settings.combiner)(settings), settings)

    def steer(self, sources: Sequence[Source]) -> NeighbourSteer:
        """What steers the decoding of a batch."""
        return NeighbourSteer(self.retriever, self.combiner, self.settings, sources, outage=self.outage)
