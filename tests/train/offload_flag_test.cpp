// SPDX-License-Identifier: Apache-2.0
#include <tessera/trainer/flags/offload_flag.hpp>

#include <gtest/gtest.h>

#include "support/temporary_folder.hpp"

namespace fsdp::train {
namespace {

OffloadFlag offload_of(std::string_view text) {
  OffloadFlag value{.optimizer = true, .inputs = 0.75};
  from_text("offload", text, value);
  return value;
}

TEST(OffloadFlag, NamesTheOptimizerAndAShareOfInputs) {
  EXPECT_EQ(offload_of("none"), OffloadFlag{});
  EXPECT_EQ(offload_of("optimizer"), OffloadFlag{.optimizer = true});
  EXPECT_EQ(offload_of("inputs"), OffloadFlag{.inputs = 1});
  EXPECT_EQ(offload_of("inputs:0.25"), OffloadFlag{.inputs = 0.25});
  EXPECT_EQ(offload_of("inputs:25%"), OffloadFlag{.inputs = 0.25});
  EXPECT_EQ(offload_of("inputs:100%"), OffloadFlag{.inputs = 1});
  for (const char* both : {"optimizer,inputs:0.5", "inputs:0.5,optimizer"})
    EXPECT_EQ(offload_of(both), (OffloadFlag{.optimizer = true, .inputs = 0.5}));
}

TEST(OffloadFlag, ItsTextIsReadAsTheSameValue) {
  for (const bool optimizer : {false, true})
    for (const double inputs : {0.0, 0.1 + 0.2, 1.0}) {
      const OffloadFlag value{.optimizer = optimizer, .inputs = inputs};
      EXPECT_EQ(offload_of(to_text(value)), value);
    }
  EXPECT_EQ(to_text(OffloadFlag{}), "none");
  EXPECT_EQ(to_text(OffloadFlag{.optimizer = true}), "optimizer");
  EXPECT_EQ(to_text(OffloadFlag{.inputs = 0.25}), "inputs:0.25");
  EXPECT_EQ(to_text(OffloadFlag{.optimizer = true, .inputs = 1}), "optimizer,inputs");
}

TEST(OffloadFlag, RefusesOtherTexts) {
  for (const char* bad : {"inputs:0", "inputs:1.01", "inputs:-1", "inputs:", "inputs:x", "inputs:nan", "inputs:101%"})
    EXPECT_INPUT_ERROR(offload_of(bad), "the share of blocks must be above 0 and at most 1");
  EXPECT_INPUT_ERROR(offload_of("input"), "did you mean 'inputs'?");
  EXPECT_INPUT_ERROR(offload_of("optimizer,input"),
                     "--offload optimizer,input is not known; did you mean 'optimizer,inputs'?");
  EXPECT_INPUT_ERROR(offload_of("optimizer,"), "--offload optimizer, is not known; did you mean 'optimizer'?");
  EXPECT_INPUT_ERROR(offload_of("none,inputs"), "--offload none,inputs: none stands alone; leave it or the rest out");
  EXPECT_INPUT_ERROR(offload_of("optimizer,none"), "--offload optimizer,none: none stands alone");
  EXPECT_INPUT_ERROR(offload_of("inputs,inputs:0.5"), "names the same twice");
}

}  // namespace
}  // namespace fsdp::train
