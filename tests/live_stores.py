"""What datastores that change are made from."""

from __future__ import annotations

OPTIONS = {"key_dtype": "float32", "index_recipe": "Flat", "calibration_sentences": 0, "batch_tokens": 64, "workers": 1}
PAIRS = [(f"{8 + n} {9 + 2 * n % 40} {10 + 3 * n % 40}", f"{20 + n} {21 + n} {50 - n}") for n in range(12)]
