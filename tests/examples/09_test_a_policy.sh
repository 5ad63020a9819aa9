#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# The policies of examples 02, 04 and 05 pass the kit's suites.
# usage: 09_test_a_policy.sh PROGRAM
source "$(dirname "$0")/../support/program.sh"
set -euo pipefail
tessera --gtest_brief=1
contains "$out" 'PASSED'
lacks "$out" 'SKIPPED'
