#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Compares every source file with .clang-format. usage: format.sh [CLANG_FORMAT]
#
# To format all of them instead: find bench examples include src tests -name '*.[ch]pp' | xargs clang-format -i
set -euo pipefail
cd "$(dirname "$0")/../.."
find bench examples include src tests -name '*.[ch]pp' -print0 | xargs -0 "${1:-clang-format}" --dry-run -Werror
