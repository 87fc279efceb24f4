"""fairseq's dictionaries (`dict.de.txt`): the numbers of symbols."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path

from knn_seq.errors import DamagedFile, KnnSeqError, NotFound

BOS, PAD, EOS, UNK = range(4)
SPECIAL = ("<s>", "<pad>", "</s>", "<unk>")
OVERWRITE = "#fairseq:overwrite"
CONTINUED = "@@"  # ends a piece that is not the last of its word
WORD_START = "▁"


class Dictionary:
    """Symbols and their numbers; the first four are special.

    Args:
        symbols: Those behind the special ones, in their order; where one comes twice the later number holds.
    """

    def __init__(self, symbols: Iterable[str] = ()) -> None:
        self.symbols = [*SPECIAL, *symbols]
        self._numbers = {symbol: number for number, symbol in enumerate(self.symbols)}

    @classmethod
    def read(cls, path: Path) -> Dictionary:
        """Read a file with a symbol and its count on each line."""
        symbols: list[str] = []
        seen = set(SPECIAL)
        try:
            with open(path, encoding="utf-8") as file:
                for number, line in enumerate(file, 1):
                    symbol, overwrite = _symbol(path, number, line)
                    if symbol in seen and not overwrite:
                        raise DamagedFile(
                            f"{path} has the symbol '{symbol}' a second time in line {number}: "
                            "use the dictionary that the model was trained with."
                        )
                    seen.add(symbol)
                    symbols.append(symbol)
        except UnicodeDecodeError as error:
            raise DamagedFile(
                f"The dictionary {path} is not UTF-8: use the one that the model was trained with."
            ) from error
        except FileNotFoundError as error:
            raise NotFound(f"There is no dictionary {path}.") from error
        except OSError as error:
            raise KnnSeqError(f"The dictionary {path} cannot be read: {error.strerror}.") from error
        return cls(symbols)

    def write(self, path: Path) -> None:
        """Write a file that `read` reads; counts are not known here, so all are 1."""
        seen = set(SPECIAL)
        with open(path, "w", encoding="utf-8", newline="\n") as file:
            for symbol in self.symbols[len(SPECIAL) :]:
                file.write(f"{symbol} 1{f' {OVERWRITE}' if symbol in seen else ''}\n")
                seen.add(symbol)

    def extended(self, symbols: Iterable[str]) -> Dictionary:
        """This one with further symbols at its end, as far as it lacks them."""
        return Dictionary([*self.symbols[len(SPECIAL) :], *(symbol for symbol in symbols if symbol not in self)])

    def __len__(self) -> int:
        return len(self.symbols)

    def __contains__(self, symbol: str) -> bool:
        return symbol in self._numbers

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Dictionary) and self.symbols == other.symbols

    __hash__ = None  # type: ignore[assignment]

    def number(self, symbol: str) -> int:
        """The symbol's number, or that of the unknown symbol."""
        return self._numbers.get(symbol, UNK)

    def encode(self, symbols: Iterable[str]) -> list[int]:
        """The numbers of a sentence and of its end; what looks like a special symbol in text is unknown."""
        numbers = (self.number(symbol) for symbol in symbols)
        return [*(number if number >= len(SPECIAL) else UNK for number in numbers), EOS]

    def decode(self, numbers: Iterable[int]) -> list[str]:
        """The symbols before the end."""
        symbols = []
        for number in map(int, numbers):
            if number == EOS:
                break
            if number not in (BOS, PAD):
                symbols.append(self.symbols[number] if number < len(self.symbols) else SPECIAL[UNK])
        return symbols

    def has_word_starts(self) -> bool:
        """Whether the symbols are SentencePiece's, which mark where words begin."""
        return any(symbol.startswith(WORD_START) for symbol in self.symbols)


def join_pieces(pieces: Sequence[str], word_starts: bool) -> str:
    """The words of pieces.

    Args:
        pieces: The symbols of a sentence.
        word_starts: They are SentencePiece's; else "@@" marks those that continue.
    """
    if word_starts:
        return "".join(pieces).replace(WORD_START, " ").strip()
    return f"{' '.join(pieces)} ".replace(f"{CONTINUED} ", "").rstrip()


def _symbol(path: Path, number: int, line: str) -> tuple[str, bool]:
    symbol, _, count = line.rstrip().rpartition(" ")
    overwrite = count == OVERWRITE
    if overwrite:
        symbol, _, count = symbol.rpartition(" ")
    if not symbol or not count.lstrip("-").isdecimal():
        raise DamagedFile(f"Line {number} of the dictionary {path} is not a symbol and its count: '{line.strip()}'.")
    return symbol, overwrite
