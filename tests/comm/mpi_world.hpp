// SPDX-License-Identifier: Apache-2.0
/// @file
/// The communicator of all processes of an MPI test program; made by mpi_test_main.cpp.
#pragma once

#include <tessera/comm/mpi.hpp>

namespace fsdp::comm {

Mpi<>& mpi_world();

}  // namespace fsdp::comm
