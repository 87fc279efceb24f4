"""All that knows fairseq: its checkpoints and its data, read without it, and the plug-in for `fairseq-generate`."""

from __future__ import annotations

from pathlib import Path


def register_fairseq() -> None:
    """Let `AutoModelForSeq2SeqLM` of Transformers load any folder that `knn-seq convert` wrote."""
    from knn_seq.fairseq.checkpoint.network import register_fairseq

    register_fairseq()


def plugin_folder() -> Path:
    """The folder for fairseq's `--user-dir`.

    fairseq puts the folder above it in front of all others that Python imports from: nothing else may be in there.
    """
    return Path(__file__).resolve().parent / "plugin" / "knn_seq_plugin"
