"""A fairseq model as a folder of Transformers, and back from there."""

from __future__ import annotations

import json
import re
import shutil
from pathlib import Path
from typing import Any

import transformers

from knn_seq.errors import DamagedFile, InvalidSetting
from knn_seq.fairseq.checkpoint.network import fairseq_search, generation_config, register_fairseq
from knn_seq.fairseq.checkpoint.options import OPTIONS_NAME
from knn_seq.fairseq.checkpoint.subwords import WORD_END, BytePairs, SentencePieces
from knn_seq.fairseq.checkpoint.tokenizer import FairseqTokenizer, Side

# The options that say how text becomes tokens; all others are in the network's own configuration.
TEXT_OPTIONS = re.compile(
    r"task|(source|target)_lang|lang_tok_style|langtoks_specs|encoder_langtok|decoder_langtok|tokenizer|moses_.*"
)


def is_converted(folder: Path) -> bool:
    """Whether `save` wrote this folder."""
    return (folder / OPTIONS_NAME).is_file() and (folder / "config.json").is_file()


def save(folder: Path, network: Any, tokenizer: FairseqTokenizer, options: dict[str, Any]) -> None:
    """Write the network as `save_pretrained` does, with the dictionaries, the BPE and the options of the text.

    An FSMT with BPE codes gets the files of Transformers' own tokenizer too.
    """
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise InvalidSetting(f"{folder} is there already and is not empty: choose another folder.")
    folder.mkdir(parents=True, exist_ok=True)
    transformers.utils.logging.disable_progress_bar()
    network.save_pretrained(folder)
    positions = network.config.max_position_embeddings - bool(tokenizer.languages)  # the language token takes one
    fairseq_search(positions).save_pretrained(folder)
    written = {name: value for name, value in options.items() if TEXT_OPTIONS.fullmatch(name)}
    if tokenizer.languages:
        written |= {"langs": list(tokenizer.languages), "source_lang": None, "target_lang": None}
    else:
        written |= {"source_lang": tokenizer.source.language, "target_lang": tokenizer.target.language}
    for side in (tokenizer.source, tokenizer.target):
        # All languages of a multilingual model have one dictionary and one BPE.
        side.dictionary.write(folder / ("dict.txt" if tokenizer.languages else f"dict.{side.language}.txt"))
        if side.subwords.path is not None:
            written |= _copy_subwords(side, folder, "codes" if tokenizer.languages else side.language)
    (folder / OPTIONS_NAME).write_text(json.dumps(written, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")
    if network.config.model_type == "fsmt" and isinstance(tokenizer.source.subwords, BytePairs):
        _save_fsmt_tokenizer(folder, tokenizer)


def load(folder: Path) -> tuple[Any, dict[str, Any]]:
    """The network of a folder that `save` wrote, and its options."""
    transformers.utils.logging.disable_progress_bar()
    register_fairseq()
    try:
        network = transformers.AutoModelForSeq2SeqLM.from_pretrained(folder, dtype="auto")
    except (OSError, ValueError, KeyError) as error:
        raise DamagedFile(f"The folder {folder} does not hold a model that can be loaded: {error}") from error
    network.generation_config = generation_config()
    options: dict[str, Any] = json.loads((folder / OPTIONS_NAME).read_text(encoding="utf-8"))
    return network.eval(), options


def _copy_subwords(side: Side, folder: Path, name: str) -> dict[str, str]:
    path = side.subwords.path
    assert path is not None
    if isinstance(side.subwords, SentencePieces):
        shutil.copyfile(path, folder / f"{name}.model")
        return {"bpe": "sentencepiece"}
    shutil.copyfile(path, folder / f"bpe.{name}")
    return {"bpe": "subword_nmt"}


def _save_fsmt_tokenizer(folder: Path, tokenizer: FairseqTokenizer) -> None:
    """Transformers marks the ends of words, not the pieces that others continue."""
    codes = tokenizer.source.subwords
    assert isinstance(codes, BytePairs)
    if codes.separate_end:
        return
    for name, side in (("vocab-src.json", tokenizer.source), ("vocab-tgt.json", tokenizer.target)):
        vocabulary = {_fsmt_symbol(symbol, number): number for number, symbol in enumerate(side.dictionary.symbols)}
        (folder / name).write_text(json.dumps(vocabulary, ensure_ascii=False) + "\n", encoding="utf-8")
    merges = "".join(f"{first} {second}\n" for first, second in codes.merges)
    (folder / "merges.txt").write_text(merges, encoding="utf-8")
    settings = {
        "langs": [tokenizer.source.language, tokenizer.target.language],
        "tokenizer_class": "FSMTTokenizer",
        "do_lower_case": False,
    }
    (folder / "tokenizer_config.json").write_text(json.dumps(settings, indent=2) + "\n", encoding="utf-8")


def _fsmt_symbol(symbol: str, number: int) -> str:
    if number < 4:
        return symbol
    return symbol.removesuffix("@@") if symbol.endswith("@@") else symbol + WORD_END
