#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# A run that goes on with other ranks and another strategy has the losses of the one that was not interrupted.
# usage: 10_resume_elsewhere.sh PROGRAM
source "$(dirname "$0")/../support/program.sh"
set -euo pipefail
tessera saved
contains "$out" '^resumed: the stack was fsdp2 threads:2 fp32 off, is zero3 threads:3 fp32 off'
python3 - "$out" <<'PY' || fail "the losses differ"
import re, sys
first, second = open(sys.argv[1]).read().split("== steps 21 to 40")
losses = [{int(s): float(l) for s, l in re.findall(r"^step (\d+)/40  loss ([0-9.]+)", text, re.M)} for text in (first, second)]
assert sorted(losses[1]) == [21, 25, 30, 35, 40], losses
assert all(abs(losses[1][s] - losses[0][s]) < 2e-4 for s in (25, 30, 35, 40)), losses
PY
