"""Writes the folder of a two-layer Llama for `--load-format dummy`: everything but the weights, which are then random.

    PYTHON_OF_VLLM tests/vllm/tiny_model.py FOLDER TEXT_FILE

Runs in vLLM's own environment, which has `tokenizers`. The same text gives the same tokenizer.
"""

import json
import sys
from pathlib import Path

VOCABULARY = 1_000
CONFIG = {
    "architectures": ["LlamaForCausalLM"],
    "model_type": "llama",
    "hidden_size": 128,
    "intermediate_size": 256,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 32,
    "vocab_size": 1024,
    "max_position_embeddings": 4096,
    "rms_norm_eps": 1e-5,
    "rope_theta": 10_000.0,
    "torch_dtype": "bfloat16",
    "bos_token_id": 0,
    "eos_token_id": 1,
    "tie_word_embeddings": True,
}
TOKENIZER = {
    "tokenizer_class": "PreTrainedTokenizerFast",
    "bos_token": "<s>",
    "eos_token": "</s>",
    "model_max_length": 4096,
    "chat_template": (
        "{% for m in messages %}{{ m['role'] + ': ' + m['content'] + '\\n' }}{% endfor %}"
        "{% if add_generation_prompt %}assistant:{% endif %}"
    ),
}


def write_model(folder: Path, text: Path) -> None:
    """Write `config.json` and a byte-level BPE tokenizer trained on a text."""
    from tokenizers import (  # type: ignore[import-not-found]
        Tokenizer,
        decoders,
        models,
        pre_tokenizers,
        trainers,
    )

    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=VOCABULARY,
        special_tokens=["<s>", "</s>"],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    tokenizer.train([str(text)], trainer)
    folder.mkdir(parents=True, exist_ok=True)
    tokenizer.save(str(folder / "tokenizer.json"))
    (folder / "config.json").write_text(json.dumps(CONFIG, indent=1))
    (folder / "tokenizer_config.json").write_text(json.dumps(TOKENIZER, indent=1))


if __name__ == "__main__":
    write_model(Path(sys.argv[1]), Path(sys.argv[2]))
