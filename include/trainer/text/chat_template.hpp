// SPDX-License-Identifier: Apache-2.0
/// @file
/// Forwards to tessera/text; removed in 0.5.
#pragma once

#include <tessera/text/chat_template.hpp>
