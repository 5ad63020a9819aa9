// SPDX-License-Identifier: Apache-2.0
#include <tessera/comm/threads.hpp>

#include "stack_benches.hpp"

namespace fsdp::bench {

Backend on_threads() { return backend_on<comm::Threads<>>(); }

}  // namespace fsdp::bench
