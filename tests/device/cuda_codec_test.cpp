// SPDX-License-Identifier: Apache-2.0
/// Codes in blocks on Cuda: the same bits as on the CPU.
#include "codecs.hpp"
#include "cuda_reference.hpp"

namespace fsdp::device {
namespace {

using namespace reference;

TEST(CudaCodecs, EncodeDecodeAndAddAsDefined) {
  FSDP_NEEDS_DEVICE();
  for (const std::int64_t count : {1, 3, 31, 64, 1000})
    for (const std::int64_t elements : {64, 256}) {
      expect_codes<float, CudaRank>({}, count, elements);
      expect_codes<bf16, CudaRank>({}, count, elements);
    }
}

TEST(CudaCodecs, AdamWStepsEncodedMomentsAsDefined) {
  FSDP_NEEDS_DEVICE();
  for (const MomentForm form : {MomentForm::bf16, MomentForm::dynamic8})
    for (const std::int64_t count : {1, 255, 1027}) {
      expect_coded_adamw<float, CudaRank>({}, form, count);
      expect_coded_adamw<bf16, CudaRank>({}, form, count);
    }
}

}  // namespace
}  // namespace fsdp::device
