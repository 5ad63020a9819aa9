#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Writes tests/text/lora: adapters by PEFT for the Qwen3 of tests/text/chat, and the losses of a fine-tuning loop that trains them.

usage: make_lora.py OUT_DIR        needs: pip install torch transformers peft (2.15.0, 5.23.0 and 0.21.2 wrote the files that are kept)
       make_lora.py --check ADAPTER_DIR [LOSS]      opens adapters by PEFT and prints their mean loss on the answers; with LOSS, compares

all/: rank 4 beside every projection; some/: rank 2, rank-stabilised, beside q and v of the first layer and every down. Both with random B.
The loop is that of make_chat.py: every step sees each conversation once, in float64; AdamW steps the adapters alone. losses.txt: a line for
each step of all/; some.txt: the loss of some/ before any step.
"""
import json
import pathlib
import sys

import peft
import torch
import transformers

CHAT = pathlib.Path(__file__).parent / "chat"


def batches():
    """Tokens and targets of each conversation; targets are answers alone."""
    tokenizer = transformers.PreTrainedTokenizerFast(tokenizer_file=str(CHAT.parent / "tokenizers" / "qwen.json"),
                                                     chat_template=(CHAT / "chat_template.jinja").read_text())
    made = []
    for line in (CHAT / "chats.jsonl").read_text().splitlines():
        one = tokenizer.apply_chat_template(json.loads(line)["messages"], tokenize=True, return_dict=True, return_assistant_tokens_mask=True)
        ids, mask = torch.tensor(one["input_ids"]), torch.tensor(one["assistant_masks"]).bool()
        made.append((ids[:-1][None], torch.where(mask[1:], ids[1:], -100)))
    return made


def base():
    return transformers.AutoModelForCausalLM.from_pretrained(CHAT, attn_implementation="eager", dtype=torch.float32)


def mean_loss(model, data, backward):
    count = sum(int((targets != -100).sum()) for _, targets in data)
    total = 0.0
    for ids, targets in data:
        with torch.set_grad_enabled(backward):
            logits = model(input_ids=ids, use_cache=False).logits[0]
            loss = torch.nn.functional.cross_entropy(logits, targets, ignore_index=-100, reduction="sum") / count
        if backward:
            loss.backward()
        total += loss.item()
    return total


def adapted(out, seed, **how):
    torch.manual_seed(seed)
    model = peft.get_peft_model(base(), peft.LoraConfig(task_type="CAUSAL_LM", **how))
    model.peft_config["default"].base_model_name_or_path = "chat"
    for name, weight in model.named_parameters():
        if "lora_B" in name:
            weight.data = 0.1 * torch.randn_like(weight)
    model.save_pretrained(out)
    (out / "README.md").unlink(missing_ok=True)
    return model.double().eval()


def check(folder):
    return mean_loss(peft.PeftModel.from_pretrained(base(), folder).double().eval(), batches(), False)


def main():
    if sys.argv[1] == "--check":
        loss = check(sys.argv[2])
        print(f"{loss:.9f}")
        return int(len(sys.argv) > 3 and abs(loss - float(sys.argv[3])) > 1e-6)
    out = pathlib.Path(sys.argv[1])
    data = batches()
    some = adapted(out / "some", 2, r=2, lora_alpha=3, use_rslora=True,
                   target_modules=["model.layers.0.self_attn.q_proj", "model.layers.0.self_attn.v_proj", "down_proj"])
    (out / "some.txt").write_text(f"{mean_loss(some, data, False):.9f}\n")
    model = adapted(out / "all", 1, r=4, lora_alpha=6, lora_dropout=0.0, target_modules="all-linear")
    weights = [weight for weight in model.parameters() if weight.requires_grad]
    optimizer = torch.optim.AdamW(weights, lr=1e-2, betas=(0.9, 0.95), eps=1e-8, weight_decay=0.1)
    losses = []
    for _ in range(8):
        optimizer.zero_grad()
        losses.append(mean_loss(model, data, True))
        torch.nn.utils.clip_grad_norm_(weights, 1.0)
        optimizer.step()
    (out / "losses.txt").write_text("".join(f"{loss:.9f}\n" for loss in losses))
    print(f"{sum(w.numel() for w in weights)} trained weights, losses {losses[0]:.4f} to {losses[-1]:.4f}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
