// SPDX-License-Identifier: Apache-2.0
#include <tessera/trainer/flags/cluster_file.hpp>

#include <algorithm>
#include <vector>

#include <tessera/fsdp/core/error.hpp>
#include <tessera/fsdp/core/named_values.hpp>
#include <tessera/fsdp/core/terminal_text.hpp>
#include <tessera/trainer/flags/flag_set.hpp>

#include "../../fsdp/core/paths.hpp"
#include "../../fsdp/core/prefixed.hpp"

namespace fsdp::train {
namespace {

/// Reads a file's keys. All keys are required, except those of a network that one node does not use.
plan::Cluster read_file(const std::string& path, std::int64_t ranks) {
  plan::Cluster cluster;
  FlagSet keys;
  const std::vector<NamedValue> values = NamedValues(cluster).list();
  for (const NamedValue& value : values) keys.add(value);
  apply_keys(keys, path);
  if (ranks > 0) cluster.ranks = ranks;
  const bool one_node = cluster.ranks > 0 && cluster.ranks <= cluster.ranks_per_node;
  for (const NamedValue& value : values)
    require<InputError>(keys.is_given(flag_name(value.name)) || (value.name == "ranks" && ranks > 0) ||
                            (one_node && value.name.starts_with("network_")),
                        path, ": ", value.name, " is missing; give it: ", value.help);
  if (!keys.is_given("network-latency")) cluster.network_latency = cluster.node_latency;  // then not used
  if (!keys.is_given("network-bandwidth")) cluster.network_bandwidth = cluster.node_bandwidth;
  prefixed(message(path, ": "), [&] { cluster.validate(); });
  return cluster;
}

}  // namespace

plan::Cluster read_cluster(const std::string& name, std::int64_t ranks) {
  const std::vector<std::string> names = plan::known_cluster_names();
  require<InputError>(!name.empty(), "--cluster is missing; give a TOML file, or a known cluster such as ",
                      names.front());
  const bool known = std::ranges::find(names, name) != names.end();
  require<InputError>(known || path_exists(name), "--cluster ", name, ": no such file, and no cluster has this name; ",
                      suggestion(name, names));
  if (known) return prefixed(message("--cluster ", name, ": "), [&] { return plan::known_cluster(name, ranks); });
  return prefixed("--cluster ", [&] { return read_file(name, ranks); });
}

}  // namespace fsdp::train
