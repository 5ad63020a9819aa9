// SPDX-License-Identifier: Apache-2.0
/// @file
/// The fake NCCL that this program is linked with.
#pragma once

#include <nccl.h>

#include <support/nccl/fake.hpp>

namespace fsdp::testing::cuda_host {

FakeNccl& nccl();

}  // namespace fsdp::testing::cuda_host
