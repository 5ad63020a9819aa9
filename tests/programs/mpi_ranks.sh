#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# A sample of tests/long/ranks.sh.
exec bash "$(dirname "$(realpath "$0")")/../long.sh" ranks "$1" sample
