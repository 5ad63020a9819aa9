#!/usr/bin/env python3
"""Writes what `transformers` generates greedily with models of this folder.

usage: make_tokens.py FOLDER...

Each FOLDER, which make_family.py wrote, gets tokens.txt. A line is "repetition penalty;prompt;prompt and what follows",
tokens as comma lists. `generate` computes in float64, with its key-value cache; it is run again without. Every
token leads the next likeliest by 1e-3 at least, so that float32 has to choose the same.
"""
import pathlib, sys

import torch, transformers

PROMPTS = [[101, 32, 116], [100], [5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15], [127, 0]]
NEW_TOKENS = 24


def continued(model, prompt, penalty, use_cache):
    ids = torch.tensor([prompt])
    made = model.generate(ids, attention_mask=torch.ones_like(ids), do_sample=False, max_new_tokens=NEW_TOKENS,
                          repetition_penalty=penalty, use_cache=use_cache, return_dict_in_generate=True,
                          output_scores=True, pad_token_id=0)
    for scores in made.scores:
        first, second = scores[0].topk(2).values.tolist()
        assert first - second >= 1e-3, (prompt, penalty, first - second)
    return made.sequences[0].tolist()


def main():
    for folder in map(pathlib.Path, sys.argv[1:]):
        model = transformers.AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float64, attn_implementation="eager")
        model.generation_config.eos_token_id = None
        lines = []
        for penalty in (1.0, 1.5):
            for prompt in PROMPTS:
                tokens = continued(model, prompt, penalty, True)
                assert tokens == continued(model, prompt, penalty, False), (folder, prompt, penalty)
                lines.append(";".join([str(penalty), ",".join(map(str, prompt)), ",".join(map(str, tokens))]) + "\n")
        (folder / "tokens.txt").write_text("".join(lines))


if __name__ == "__main__":
    main()
