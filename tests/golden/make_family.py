#!/usr/bin/env python3
"""Writes golden vectors for a small random model of Hugging Face's `transformers`, as make_llama.py does for its own.

usage: make_family.py OUT_DIR MODEL_TYPE [--set KEY=JSON ...] [--seq 17] [--seed 0]

MODEL_TYPE is llama, mistral, qwen2 or qwen3; each --set changes a key of its config.json. OUT_DIR gets the files of
make_llama.py: config.json and model.safetensors as `save_pretrained` writes them, text.bin, and expected.safetensors,
whose numbers are those of the model in float64, with attention written out ("eager"). Norms, rotary positions and the softmax
of attention are float32 there, so that they are good to about 1e-6.
"""
import argparse, json, pathlib

import torch, transformers

from make_llama import WINDOWS, expected_of, save_safetensors, text_of

SIZES = dict(hidden_size=24, intermediate_size=40, num_hidden_layers=2, num_attention_heads=4, num_key_value_heads=2,
             vocab_size=128, max_position_embeddings=64)


def deviation(name):
    """Attention must matter: where its scores are nearly equal, nobody sees a wrong position or window."""
    return 0.5 if "q_proj.weight" in name or "k_proj.weight" in name else 0.1


def main():
    a = argparse.ArgumentParser()
    a.add_argument("out", type=pathlib.Path)
    a.add_argument("model_type")
    a.add_argument("--set", action="append", default=[], metavar="KEY=JSON")
    a.add_argument("--seq", type=int, default=17)
    a.add_argument("--seed", type=int, default=0)
    a = a.parse_args()
    changes = {key: json.loads(value) for key, _, value in (each.partition("=") for each in a.set)}
    config = transformers.AutoConfig.for_model(a.model_type, **(SIZES | changes))
    config._attn_implementation = "eager"
    torch.manual_seed(a.seed)
    model = transformers.AutoModelForCausalLM.from_config(config)
    for name, weight in model.named_parameters():
        weight.data = deviation(name) * torch.randn_like(weight) + (1 if "norm" in name else 0)
    model.save_pretrained(a.out)
    model = model.double()

    data = torch.tensor(list(text_of(a.seed + 1, WINDOWS * a.seq + 1)))
    tokens, targets = data[:-1].view(WINDOWS, a.seq), data[1:].view(WINDOWS, a.seq)
    weights = dict(model.named_parameters())
    expected = expected_of(weights, lambda: model(input_ids=tokens, use_cache=False).logits.double(), targets)
    (a.out / "text.bin").write_bytes(bytes(data.tolist()))
    save_safetensors(a.out / "expected.safetensors", {name: t.float() if t.numel() > 100 else t for name, t in expected.items()})
    (a.out / "generation_config.json").unlink(missing_ok=True)
    print(a.out, "loss", expected["loss"].item(), "->", expected["adamw.losses"][-1].item(), "| torch", torch.__version__, "transformers", transformers.__version__)


if __name__ == "__main__":
    main()
