// SPDX-License-Identifier: Apache-2.0
#include <tessera/fsdp/optim/statistics.hpp>

#include <tessera/fsdp/core/error.hpp>
#include <tessera/fsdp/core/terminal_text.hpp>

namespace fsdp {
namespace {

void require_free(const Statistic& statistic, std::span<const Statistic> earlier, GroupList groups) {
  bool taken = statistic.name.empty();
  for (const Statistic& other : earlier) taken = taken || other.name == statistic.name;
  for (const GroupTensors* const group : groups)
    for (const Parameter& parameter : group->parameters()) taken = taken || parameter.name == statistic.name;
  require<InputError>(!taken, "statistic: the name '", statistic.name, "' is empty or taken");
}

}  // namespace

StatisticList::StatisticList(std::vector<Statistic> list, GroupList groups) : list_(std::move(list)) {
  for (const Statistic& statistic : list_) {
    require_free(statistic, std::span(list_).first(starts_.size()), groups);
    check_shape(message("statistic '", statistic.name, "'"), statistic.shape);
    starts_.push_back(elements_);
    elements_ += round_up(statistic.shape.numel(), device::alignment / std::int64_t{sizeof(float)});
  }
}

StatisticList::~StatisticList() = default;

std::size_t StatisticList::index_of(std::string_view name) const {
  std::vector<std::string> names;
  for (std::size_t i = 0; i < list_.size(); ++i) {
    if (list_[i].name == name) return i;
    names.push_back(list_[i].name);
  }
  throw InputError(message("there is no statistic '", name, "'; ",
                           names.empty() ? "Settings::statistics declares none" : suggestion(name, names)));
}

Parameter StatisticList::parameter(std::size_t index) const {
  return {.name = list_[index].name, .shape = list_[index].shape, .initial = list_[index].initial};
}

}  // namespace fsdp
