#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Writes tests/text/chat: a small random Qwen3, conversations, and the losses of a fine-tuning loop on their answers by `transformers`.

usage: make_chat.py OUT_DIR        needs: pip install torch transformers (2.15.0 and 5.23.0 wrote the files that are kept)

The tokenizer is tests/text/tokenizers/qwen.json. The chat template marks its answers by generation blocks; `transformers` itself renders,
tokenizes and tells which tokens are the assistant's. Every step sees each conversation once, alone in its sequence; the loss is the mean over
all answer tokens of all conversations; AdamW as in make_family.py, gradients clipped to a norm of 1. losses.txt: a line for each step.
"""
import json
import pathlib
import random
import sys

import torch
import transformers

TEMPLATE = """{%- for message in messages %}
    {%- if message.role == 'assistant' %}
        {{- '<|im_start|>assistant\\n' }}{% generation %}{{ message.content + '<|im_end|>' }}{% endgeneration %}{{ '\\n' }}
    {%- else %}
        {{- '<|im_start|>' + message.role + '\\n' + message.content + '<|im_end|>\\n' }}
    {%- endif %}
{%- endfor %}
{%- if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{% endif %}
"""


def conversations():
    draw = random.Random(5)
    for i in range(24):
        messages = [{"role": "system", "content": "Add numbers – kindly."}] if i % 3 == 0 else []
        for _ in range(1 + i % 3):
            a, b = draw.randrange(100), draw.randrange(100)
            messages += [{"role": "user", "content": f"What is {a} + {b}?"},
                         {"role": "assistant", "content": f"{a} + {b} = {a + b}" + draw.choice(["", ".", " 🎉", "\n\nYes, really."])}]
        yield {"messages": messages}


def main():
    out = pathlib.Path(sys.argv[1])
    tokenizer_json = pathlib.Path(__file__).parent / "tokenizers" / "qwen.json"
    tokenizer = transformers.PreTrainedTokenizerFast(tokenizer_file=str(tokenizer_json), chat_template=TEMPLATE)
    config = transformers.Qwen3Config(hidden_size=24, intermediate_size=40, num_hidden_layers=2, num_attention_heads=4, num_key_value_heads=2,
                                      head_dim=8, vocab_size=1216, max_position_embeddings=512, tie_word_embeddings=True)
    config._attn_implementation = "eager"
    torch.manual_seed(0)
    model = transformers.AutoModelForCausalLM.from_config(config)
    for name, weight in model.named_parameters():
        weight.data = (0.5 if "q_proj" in name or "k_proj" in name else 0.1) * torch.randn_like(weight) + (1 if "norm" in name else 0)
    model.save_pretrained(out)
    (out / "generation_config.json").unlink(missing_ok=True)
    (out / "chat_template.jinja").write_text(TEMPLATE)
    rows = list(conversations())
    (out / "chats.jsonl").write_text("".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows))

    batches = []
    for row in rows:
        made = tokenizer.apply_chat_template(row["messages"], tokenize=True, return_dict=True, return_assistant_tokens_mask=True)
        ids, mask = torch.tensor(made["input_ids"]), torch.tensor(made["assistant_masks"]).bool()
        batches.append((ids[:-1][None], torch.where(mask[1:], ids[1:], -100)))
    count = sum(int((targets != -100).sum()) for _, targets in batches)
    model = model.double()
    weights = list(model.parameters())
    optimizer = torch.optim.AdamW([{"params": [w for w in weights if w.dim() == 2], "weight_decay": 0.1},
                                   {"params": [w for w in weights if w.dim() == 1], "weight_decay": 0.0}], lr=1e-3, betas=(0.9, 0.95), eps=1e-8)
    losses = []
    for _ in range(8):
        optimizer.zero_grad()
        total = 0.0
        for ids, targets in batches:
            logits = model(input_ids=ids, use_cache=False).logits[0].double()
            loss = torch.nn.functional.cross_entropy(logits, targets, ignore_index=-100, reduction="sum") / count
            loss.backward()
            total += loss.item()
        torch.nn.utils.clip_grad_norm_(weights, 1.0)
        losses.append(total)
        optimizer.step()
    (out / "losses.txt").write_text("".join(f"{loss:.9f}\n" for loss in losses))
    print(f"{len(rows)} conversations, {count} answer tokens, losses {losses[0]:.4f} to {losses[-1]:.4f}")


if __name__ == "__main__":
    main()
