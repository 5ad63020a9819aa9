// SPDX-License-Identifier: Apache-2.0
#include "commands.hpp"

#include <algorithm>
#include <iomanip>
#include <span>
#include <sstream>
#include <string>
#include <string_view>
#include <vector>

#include <boost/mp11/algorithm.hpp>
#include <boost/mp11/list.hpp>
#include <range/v3/view/zip.hpp>

#include <comms.inc>
#include <tessera/comm/self.hpp>
#include <tessera/fsdp/buffer/layout_policies.hpp>
#include <tessera/fsdp/core/dtype.hpp>
#include <tessera/fsdp/core/error.hpp>
#include <tessera/fsdp/core/policy_text.hpp>
#include <tessera/fsdp/module/stack.hpp>
#include <tessera/fsdp/sharding/run_time.hpp>
#include <tessera/fsdp/sharding/strategy.hpp>

namespace fsdp::cli {
namespace {

using boost::mp11::mp_for_each;
using boost::mp11::mp_identity;
using boost::mp11::mp_list;
using boost::mp11::mp_push_back;
using boost::mp11::mp_rename;
using boost::mp11::mp_transform;

#define FSDP_COMM(type) , type
using Backends = mp_list<comm::Self<>
#include <comms.inc>
                         >;
#undef FSDP_COMM
using Types = mp_list<float, bf16, f16>;
using Precisions = mp_list<Fp32, Bf16Mixed, Bf16Wire<Bf16Mixed>, Fp16Mixed>;
using Layouts = mp_list<buffer::PerParameter, buffer::Flat, buffer::Rows, buffer::Owned, buffer::Blocks>;
using Strategies = mp_push_back<mp_rename<decltype(RunTimeAny::strategy), mp_list>, RunTimeHybridFull>;

/// Calls f.operator()<T>() for every type T of a list.
template <class List, class F>
void for_each(const F& f) {
  mp_for_each<mp_transform<mp_identity, List>>([&]<class T>(mp_identity<T>) { f.template operator()<T>(); });
}

using Row = std::vector<std::string>;

/// Formats a table; each column is as wide as its widest cell.
std::string table(const std::vector<Row>& rows) {
  std::vector<std::size_t> widths;
  for (const Row& row : rows) {
    widths.resize(std::max(widths.size(), row.size()));
    for (const auto& [width, cell] : ranges::views::zip(widths, row)) width = std::max(width, cell.size() + 2);
  }
  std::ostringstream text;
  for (const Row& row : rows) {
    text << "  ";
    for (const auto& [width, cell] : ranges::views::zip(widths, row))
      text << std::left << std::setw(&cell == &row.back() ? 0 : static_cast<int>(width)) << cell;
    text << '\n';
  }
  return text.str();
}

std::string yes(bool holds) { return holds ? "yes" : "no"; }

/// The name of a backend, read in a constant expression: this program may lack the library that defines the symbol.
template <class C>
constexpr std::string_view name_of_backend() {
  constexpr std::string_view name = C::name;
  return name;
}

template <class C, class T>
constexpr bool gathers = requires(C c, std::span<const comm::Segment<T>> segments) {
  c.all_gather(segments);
};

/// Whether the device computes in the compute type and the communicator reduces in the wire type, as for `Stack`.
template <class C, class P>
constexpr bool works_in =
    device::computes_in<typename C::Device, typename P::Compute>&& comm::supports_wire<C, typename P::Reduce>;

std::string backends() {
  std::vector<Row> rows{{"backend", "device"}};
  for (const char* operation : {"all-gather", "reduce"})
    for_each<Types>(
        [&]<class T>() { rows[0].push_back(std::string(operation) + " " + std::string(name_of(dtype_of<T>()))); });
  for_each<Backends>([&]<class C>() {
    Row& row = rows.emplace_back(Row{std::string(name_of_backend<C>()), std::string(C::Device::name)});
    for_each<Types>([&]<class T>() { row.push_back(yes(gathers<C, T>)); });
    for_each<Types>([&]<class T>() { row.push_back(yes(comm::supports_wire<C, T>)); });
  });
  return table(rows);
}

std::string precisions() {
  std::vector<Row> rows{{"precision"}};
  for_each<Backends>([&]<class C>() { rows[0].push_back(message(name_of_backend<C>(), " on ", C::Device::name)); });
  for_each<Precisions>([&]<class P>() {
    Row& row = rows.emplace_back(Row{policy_text<P>()});
    for_each<Backends>([&]<class C>() { row.push_back(yes(works_in<C, P>)); });
  });
  return table(rows);
}

std::string strategies() {
  std::vector<Row> rows{{"strategy", "weights at rest", "optimizer across groups", "axes"}};
  for_each<Layouts>([&]<class L>() { rows[0].push_back("in " + policy_text<L>()); });
  for_each<Strategies>([&]<class S>() {
    if (sharding::facts_of(S{}).pieces > 0) return;  // the same row as without pieces
    constexpr bool sharded = std::is_same_v<typename S::AtRest, buffer::Shard>;
    constexpr bool sharded_across = std::is_same_v<OptimizerPlacement<S>, buffer::Shard>;
    constexpr bool has_groups = requires { typename S::Across; };
    Row& row = rows.emplace_back(Row{listed_text(S{}, true), sharded ? "sharded" : "replicated",
                                     !has_groups      ? "-"
                                     : sharded_across ? "sharded"
                                                      : "replicated",
                                     std::to_string(mesh_axes_of<S>)});
    for_each<Layouts>([&]<class L>() {
      if (policy_text(layout_of(S{})) == policy_text<L>())
        row.push_back("yes, its own");
      else if constexpr (sharding::MayHaveParts<S>)
        row.push_back("yes, other_layout");
      else
        row.push_back(ShardingStrategy<WithLayout<S, L>> ? "yes, WithLayout" : "no");
    });
  });
  return table(rows);
}

}  // namespace

std::string support_text() {
  return "Element types that backends move and reduce:\n" + backends() +
         "Precisions that compute on a backend's device and reduce over it:\n" + precisions() +
         "Strategies by placement and layout:\n" + strategies();
}

}  // namespace fsdp::cli
