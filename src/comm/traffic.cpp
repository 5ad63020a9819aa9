// SPDX-License-Identifier: Apache-2.0
#include <tessera/comm/traffic.hpp>

namespace fsdp::comm {

std::string_view name_of(Op op) {
  switch (op) {
    case Op::all_gather: return "all_gather";
    case Op::reduce_scatter: return "reduce_scatter";
    case Op::all_reduce: return "all_reduce";
    case Op::all_to_all: return "all_to_all";
    case Op::reduce: return "reduce";
    case Op::broadcast: return "broadcast";
    case Op::gather_bytes: return "gather_bytes";
    case Op::barrier: return "barrier";
  }
  return "?";
}

}  // namespace fsdp::comm
