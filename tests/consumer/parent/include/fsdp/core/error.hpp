// SPDX-License-Identifier: Apache-2.0
#pragma once
#error "a header of the parent, taken for one of Tessera"
