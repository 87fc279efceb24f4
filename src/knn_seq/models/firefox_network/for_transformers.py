"""The network as a model of Transformers, for its trainers, its `save_pretrained` and its own generate().

Translating does not need it: `FirefoxNetwork` gives the same results, and starts in half the time.
"""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from torch import Tensor, nn
from transformers import AutoConfig, AutoModelForSeq2SeqLM, GenerationMixin, PreTrainedModel
from transformers.modeling_outputs import BaseModelOutput, Seq2SeqLMOutput

from knn_seq.models.firefox_network.configuration import FirefoxConfig
from knn_seq.models.firefox_network.layers import Encoder, FirefoxCache
from knn_seq.models.firefox_network.modeling import FirefoxParts
from knn_seq.models.firefox_network.sizes import FirefoxSizes


class OutputEncoder(Encoder):
    """The encoder with an output that Transformers can take apart."""

    main_input_name = "input_ids"

    def forward(  # type: ignore[override]  # generate() passes on what is named here, and nothing else
        self, input_ids: Tensor, attention_mask: Tensor | None = None, return_dict: bool | None = True, **_: Any
    ) -> BaseModelOutput | tuple[Tensor]:
        """As the encoder, or with `return_dict` False a plain tuple."""
        (states,) = super().forward(input_ids, attention_mask)
        return BaseModelOutput(last_hidden_state=states) if return_dict is not False else (states,)


class FirefoxForTranslation(PreTrainedModel, GenerationMixin, FirefoxParts):  # type: ignore[misc]
    """A Firefox translation model that decodes with the `generate` of Transformers.

    Args:
        config: Its configuration, or the sizes alone.
    """

    config_class = FirefoxConfig
    encoder_class = OutputEncoder
    main_input_name = "input_ids"
    base_model_prefix = ""
    _supports_sdpa = True
    _tied_weights_keys = {
        "encoder.embed_tokens.weight": "shared.weight",
        "decoder.embed_tokens.weight": "shared.weight",
        "lm_head.weight": "shared.weight",
    }

    def __init__(self, config: FirefoxConfig | FirefoxSizes) -> None:
        if isinstance(config, FirefoxSizes):
            config = FirefoxConfig(**asdict(config))
        super().__init__(config)
        FirefoxParts._make_parts(self, config)
        self.post_init()  # type: ignore[operator]

    def get_input_embeddings(self) -> nn.Embedding:
        """The one embedding matrix, (vocabulary, d)."""
        return self.shared

    def get_output_embeddings(self) -> nn.Linear:
        """The output projection: the same matrix, with a bias."""
        return self.lm_head

    @classmethod
    def _supports_default_dynamic_cache(cls) -> bool:
        return False  # so that `generate` leaves it to the first step to make a FirefoxCache

    def forward(
        self,
        input_ids: Tensor | None = None,
        attention_mask: Tensor | None = None,
        decoder_input_ids: Tensor | None = None,
        encoder_outputs: BaseModelOutput | tuple[Tensor, ...] | None = None,
        past_key_values: FirefoxCache | None = None,
        use_cache: bool | None = None,
        return_dict: bool | None = None,
        **_: Any,
    ) -> Seq2SeqLMOutput | tuple[Any, ...]:
        """See `FirefoxNetwork.forward`; with `return_dict` False a plain tuple."""
        if encoder_outputs is None:
            encoder_outputs = self.encoder(input_ids, attention_mask)
        output = self._translate(encoder_outputs[0], attention_mask, decoder_input_ids, past_key_values, use_cache)
        full = Seq2SeqLMOutput(
            logits=output.logits,
            past_key_values=output.past_key_values,
            encoder_last_hidden_state=encoder_outputs[0],
        )
        return full if return_dict is not False else full.to_tuple()


# Let the Auto classes of Transformers load what `save_pretrained` wrote.
AutoConfig.register(FirefoxConfig.model_type, FirefoxConfig, exist_ok=True)
AutoModelForSeq2SeqLM.register(FirefoxConfig, FirefoxForTranslation, exist_ok=True)
