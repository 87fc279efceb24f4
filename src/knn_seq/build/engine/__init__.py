"""Who does the work of a build: this process, or workers elsewhere."""

from knn_seq.build.engine.base import ENGINES, Engine, PieceProgress, Work, Worker, open_engine

__all__ = ["ENGINES", "Engine", "PieceProgress", "Work", "Worker", "open_engine"]
