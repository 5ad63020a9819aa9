# SPDX-License-Identifier: Apache-2.0
"""A checkpoint opens as a Hugging Face model and has the same loss there. Skipped without torch and transformers."""
import json

import pytest

from support.program import run

TEXT_BYTES = 1601
LOSS = """
import sys, torch
from transformers import LlamaForCausalLM
model = LlamaForCausalLM.from_pretrained(sys.argv[1], torch_dtype=torch.float32)
text = torch.tensor(list(open('text.txt', 'rb').read()))
with torch.no_grad():
    logits = model(text[:-1].view(-1, 64)).logits
print(torch.nn.functional.cross_entropy(logits.view(-1, 256).double(), text[1:]).item())
"""


@pytest.mark.parametrize("tied", ["true", "false"])
def test_the_loss_is_that_of_transformers(program, tied):
    if run("python3 -c 'import torch, transformers'", status=None).status:
        pytest.skip("python3 has no torch and transformers")
    program("train --data text.txt --model tiny --seq-len 64 --steps 5 --precision fp32 --comm threads:2",
            f"--tied={tied} --checkpoint-dir {tied}")
    found = json.loads(program(f"eval --model {tied}/step-00000005 --data text.txt --seq-len 64 --precision fp32").out)
    loss = float(run("python3", "-c", [LOSS], f"{tied}/step-00000005").out)
    assert found["tokens"] == 1600 and abs(found["loss"] - loss) <= 1e-4 * loss, (found, loss)
