// SPDX-License-Identifier: Apache-2.0
// 21: a codec in one file (codec.hpp), in the suite that tests Tessera's own codecs.
//
// The program is a GoogleTest. A failure reports the requirement, the case and the result.
//
// Try next: round to the code below instead of the nearest, forget the padding, or decode NaN to 0, and read which test
// fails.
#include <gtest/gtest.h>

#include <tessera/fsdp/testing/codec.hpp>

#include "codec.hpp"

using namespace fsdp::testing;
INSTANTIATE_TYPED_TEST_SUITE_P(Mine, CodecSuite, mine::Affine<64>);
