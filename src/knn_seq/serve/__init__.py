"""A server: LibreTranslate's HTTP API, one of our own, and a page."""

from knn_seq.serve.settings import ServerSettings

__all__ = ["ServerSettings"]
