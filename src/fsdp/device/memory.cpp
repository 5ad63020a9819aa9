// SPDX-License-Identifier: Apache-2.0
#include <tessera/fsdp/device/memory.hpp>

#include <utility>

#include <tessera/fsdp/device/host_memory.hpp>

namespace fsdp::device {

void Ledger::add(MemoryKind kind, std::int64_t bytes) {
  current_[static_cast<std::size_t>(kind)] += bytes;
  total_ += bytes;
  peak_ = std::max(peak_, total_);
  ++allocations_;
}

void Ledger::remove(MemoryKind kind, std::int64_t bytes) {
  current_[static_cast<std::size_t>(kind)] -= bytes;
  total_ -= bytes;
}

CountedMemory::CountedMemory() = default;
CountedMemory::CountedMemory(CountedMemory&&) noexcept = default;
CountedMemory& CountedMemory::operator=(CountedMemory&&) noexcept = default;
CountedMemory::~CountedMemory() = default;

CountedMemory::CountedMemory(Ledger& ledger, MemoryKind kind, std::byte* data, std::int64_t bytes, Release release,
                             std::shared_ptr<std::byte> lent)
    : counted_(&ledger, {kind, data, bytes, release, std::move(lent)}) {
  ledger.add(kind, bytes);
}

std::byte* CountedMemory::data() const { return counted_ ? counted_.get_deleter().data : nullptr; }
std::int64_t CountedMemory::bytes() const { return counted_ ? counted_.get_deleter().bytes : 0; }

void CountedMemory::End::operator()(Ledger* ledger) const {
  ledger->remove(kind, bytes);
  release(data, bytes);
}

std::shared_ptr<std::byte> zeroed_memory(std::int64_t bytes) {
  return {new std::byte[static_cast<std::size_t>(bytes)](), std::default_delete<std::byte[]>()};
}

}  // namespace fsdp::device
