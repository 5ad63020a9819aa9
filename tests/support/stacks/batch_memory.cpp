// SPDX-License-Identifier: Apache-2.0
#include <support/batch_memory.hpp>

#include <iterator>

#include <tessera/fsdp/nn/batch.hpp>

namespace fsdp::test {

namespace {

Tensor<const std::int32_t> view(const std::vector<std::int32_t>& list) { return {list.data(), {std::ssize(list)}}; }

}  // namespace

BatchMemory::BatchMemory() = default;
BatchMemory::~BatchMemory() = default;

TokenBatch BatchMemory::add(std::span<const Window> windows) {
  std::vector<std::int32_t>&tokens = tokens_.emplace_back(), &targets = targets_.emplace_back();
  std::vector<std::int64_t>& lengths = documents_.emplace_back();
  for (const Window& window : windows) {
    for (const std::int64_t length : window.documents) {
      if (lengths.empty()) lengths.push_back(0);
      lengths.push_back(lengths.back() + length);
    }
    tokens.insert(tokens.end(), window.tokens.begin(), window.tokens.end());
    targets.insert(targets.end(), window.targets.begin(), window.targets.end());
  }
  return {.tokens = view(tokens), .targets = view(targets), .sequences = std::ssize(windows), .documents = lengths};
}

TokenBatch BatchMemory::add(const Batch& windows, const Place& place) { return add(windows(place)); }

DrawnSteps::DrawnSteps(const ModuleState& module, const RunOptions& options) : module_(module), options_(options) {}
DrawnSteps::~DrawnSteps() = default;

double DrawnSteps::targets() const { return drawn_[begun_ - 1].targets; }

double DrawnSteps::release_oldest() {
  drawn_.front().gate.reset();
  return drawn_.front().targets;
}
void DrawnSteps::forget_oldest() {
  drawn_.pop_front();
  --begun_;
}

bool DrawnSteps::is_drawn(std::int64_t step) const { return !drawn_.empty() && drawn_.back().step == step; }

BatchCounts DrawnSteps::draw(std::int64_t step) {
  const SequenceGroup group = module_.sequence_group();
  DrawnStep& drawn = drawn_.emplace_back();
  drawn.step = step;
  BatchCounts counts;
  for (int m = 0; m < options_.micro_batches && module_.step_piece(m); ++m) {
    const Place place{.step = static_cast<int>(step),
                      .rank = group.index,
                      .ranks = group.count,
                      .micro_batch = m,
                      .micro_batches = options_.micro_batches,
                      .fixed_pieces = module_.step_pieces()};
    TokenBatch& batch = drawn.micro_batches.emplace_back(drawn.memory.add(options_.batch, place));
    batch.set_noise(1, (step * place.pieces() + place.piece()) * options_.most_sequences);
    counts += nn::counts_of_part(batch, group.member, group.size);
  }
  return counts;
}

const DrawnStep& DrawnSteps::begin(std::int64_t targets) {
  ++begun_;
  drawn_.back().targets = static_cast<double>(targets);
  return drawn_.back();
}

std::shared_future<void> DrawnSteps::shut_gate() {
  if (!options_.reads_late || begun_ == 1) return {};
  return drawn_[begun_ - 1].gate.emplace().get_future().share();
}

}  // namespace fsdp::test

template class std::vector<fsdp::test::Window>;
