// SPDX-License-Identifier: Apache-2.0
#include <tessera/comm/mpi.hpp>

#include "stack_benches.hpp"

namespace fsdp::bench {

Backend on_mpi() { return backend_on<comm::Mpi<>>(); }

}  // namespace fsdp::bench
