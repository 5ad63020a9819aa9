// SPDX-License-Identifier: Apache-2.0
/// @file
/// The typed front end that Self, Threads, Mpi and Nccl share; it drives an untyped core.
///
/// A core is one rank's implementation, with element types erased. It has `rank`, `size`, `monitor`, `scratch_bytes`,
/// `split`, and
///  - `Transfer& prepare()`: returns the next transfer's description, for the caller to fill in; `Ticket start()`:
///  starts it;
///  - `test(ticket)`, `wait(ticket)`: see AsyncRequest; `abandon(ticket)`: this rank has failed and will not wait;
///  - on an asynchronous device, `after(event)`, `wait_for(event)` and `done(ticket)`: see QueuedCommunicator; and
///  `progress(ticket)`: does the host's share of the work without waiting.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <memory>
#include <span>
#include <type_traits>
#include <utility>
#include <vector>

#include <tessera/comm/communicator.hpp>
#include <tessera/comm/transfer.hpp>

namespace fsdp::comm {

/// The number of a transfer on its communicator, from 0.
using Ticket = std::uint64_t;

/// A transfer that was started on a `Core`. It must not outlive its communicator. Wait for several requests in the
/// order in which they were started.
template <class Core>
class TransferRequest {
 public:
  TransferRequest() = default;
  /// Wraps transfer `ticket`, which `core` has started.
  TransferRequest(Core& core, Ticket ticket) : core_(&core), ticket_(ticket), exceptions_(std::uncaught_exceptions()) {}
  /// Takes over the other object's transfer. Assignment first finishes the transfer that this object owned.
  /// @{
  TransferRequest(TransferRequest&& other) noexcept { *this = std::move(other); }
  TransferRequest& operator=(TransferRequest&& other) noexcept {
    finish();
    core_ = std::exchange(other.core_, nullptr);
    ticket_ = other.ticket_;
    exceptions_ = other.exceptions_;
    state_ = other.state_;
    return *this;
  }
  /// @}
  ~TransferRequest() { finish(); }

  /// Returns whether the transfer is complete. Makes progress if the host moves the data.
  bool test() {
    if (core_ == nullptr || state_ == State::over) return true;
    if (!core_->test(ticket_)) return false;
    state_ = State::over;
    return true;
  }
  /// Does the host's share of the transfer, without waiting.
  template <class Queued = Core>  // a template for clang 14, as Backend::after
  void progress() requires requires(Queued& core) {
    core.progress(Ticket{});
  }
  {
    if (core_ != nullptr && state_ != State::over) core_->progress(ticket_);
  }
  /// Waits until the results are in place and no peer uses this rank's memory any more. Throws CollectiveError.
  void wait() {
    if (core_ != nullptr && std::exchange(state_, State::over) != State::over) core_->wait(ticket_);
  }
  /// Returns the event of the request's completion. Every call returns the same event, so that the order of queues does
  /// not depend on the host's timing. The caller waits on the event; the destructor then does not wait.
  template <class Queued = Core>
  auto done() requires requires(Queued& core) {
    core.done(Ticket{});
  }
  {
    decltype(core_->done(ticket_)) event{};
    if (core_ != nullptr) event = core_->done(ticket_);
    if (state_ == State::started) state_ = State::joined;
    return event;
  }

 private:
  enum class State : std::uint8_t { started, joined, over };  ///< `joined`: the caller has taken the completion event

  /// Waits for the transfer, or abandons it immediately if an exception unwinds this rank. Ignores errors: the next
  /// collective reports the failure.
  void finish() noexcept {
    if (core_ == nullptr || state_ == State::over) return;
    if (std::uncaught_exceptions() > exceptions_) return core_->abandon(ticket_);
    if (state_ == State::joined) return;
    try {
      wait();
    } catch (const std::exception&) {
    }
  }

  Core* core_ = nullptr;
  Ticket ticket_ = 0;
  int exceptions_ = 0;  ///< number of exceptions in flight at construction
  State state_ = State::started;
};

/// Reduces the rows of `gathered` (one per rank, values.size() each) into `values`, in rank order.
template <class T>
void combine_in_rank_order(std::span<const std::type_identity_t<T>> gathered, Reduction reduction,
                           std::span<T> values) {
  std::copy_n(gathered.begin(), values.size(), values.begin());
  for (std::size_t at = values.size(); at < gathered.size(); ++at) {
    T& value = values[at % values.size()];
    switch (reduction) {
      case Reduction::sum: value += gathered[at]; break;
      case Reduction::max: value = std::max(value, gathered[at]); break;
      case Reduction::min: value = std::min(value, gathered[at]); break;
    }
  }
}

/// Prepares a collective of small values in host memory.
template <class Core>
Transfer& prepare_values(Core& core, Op op) {
  Transfer& transfer = core.prepare();
  describe(transfer, op, DType::u8, DType::u8);
  transfer.values = true;
  return transfer;
}
/// Gathers every rank's `mine` into `all`, in rank order. Blocks. `reduction`: see Transfer.
template <class Core>
void gather_values(Core& core, std::span<const std::byte> mine, std::span<std::byte> all, int reduction = 0) {
  const std::vector<std::int64_t> counts(static_cast<std::size_t>(core.size()), std::ssize(mine));
  Transfer& transfer = prepare_values(core, Op::all_gather);
  transfer.reduction = static_cast<std::uint8_t>(reduction);
  add_segment(transfer, {.local = const_cast<std::byte*>(mine.data()), .full = all.data(), .counts = counts});
  core.wait(core.start());
}

/// Base class that implements a Communicator on a core, except its name, `split` and launch function.
template <class Core, class DeviceType>
class Backend {
 public:
  using Device = DeviceType;
  using Request = TransferRequest<Core>;

  /// Takes ownership of the rank's core.
  explicit Backend(std::unique_ptr<Core> core);
  /// Movable; out of line, so that the library contains them for its own backends.
  /// @{
  Backend(Backend&&) noexcept;
  Backend& operator=(Backend&&) noexcept;
  ~Backend();
  /// @}

  /// Returns the number of bytes that this communicator allocates for its whole lifetime.
  std::int64_t scratch_bytes() const { return core_->scratch_bytes(); }

  /// See Communicator and QueuedCommunicator.
  /// @{
  int rank() const { return core_->rank(); }
  int size() const { return core_->size(); }
  Monitor& monitor() { return core_->monitor(); }
  const Monitor& monitor() const { return core_->monitor(); }

  template <class T>
  Request all_gather(std::span<const Segment<T>> segments) {
    describe(core_->prepare(), Op::all_gather, parts_of(segments), dtype_of<T>());
    return start();
  }
  template <class T>
  Request all_to_all(std::span<const Exchange<T>> exchanges) {
    describe(core_->prepare(), Op::all_to_all, parts_of(exchanges), dtype_of<T>());
    return start();
  }
  template <class Wire>
  Request reduce_scatter(std::span<const Segment<float>> segments, Write write,
                         Contributions contributions = Contributions::kept, SumOrder order = SumOrder::any) {
    Transfer& transfer = core_->prepare();
    describe(transfer, Op::reduce_scatter, parts_of(segments), dtype_of<Wire>(), write);
    transfer.contributions = contributions;
    transfer.order = order;
    return start();
  }
  template <class Wire>
  Request all_reduce(std::span<const Segment<float>> segments) {
    describe(core_->prepare(), Op::all_reduce, parts_of(segments), dtype_of<Wire>());
    return start();
  }

  // Templates, so that clang 14 does not instantiate them with the class.
  template <class D = Device>
  void after(const typename D::Event& event) requires(D::asynchronous) {
    core_->after(event);
  }
  template <class D = Device>
  void wait_for(const typename D::Event& event) requires(D::asynchronous) {
    core_->wait_for(event);
  }

  void reduce(std::span<double> values, Reduction reduction) { reduce_values(values, reduction, 1); }
  void reduce(std::span<std::int64_t> values, Reduction reduction) { reduce_values(values, reduction, 2); }

  void broadcast(std::span<std::byte> bytes, int root) {
    const std::int64_t count = std::ssize(bytes);
    Transfer& transfer = prepare_values(*core_, Op::broadcast);
    transfer.root = root;
    add_segment(transfer, {.local = bytes.data(), .full = bytes.data(), .counts = {&count, 1}});
    start().wait();
  }
  void gather_bytes(std::span<const std::byte> mine, std::span<std::byte> all) { gather_values(*core_, mine, all); }
  void barrier() {
    prepare_values(*core_, Op::barrier);
    start().wait();
  }
  /// @}

 protected:
  /// Returns the core, for the backend's launch and split functions.
  Core& core() { return *core_; }

 private:
  Request start() { return Request(*core_, core_->start()); }

  template <class T>
  void reduce_values(std::span<T> values, Reduction reduction, int type) {
    if (values.empty()) return barrier();
    std::vector<T> gathered(values.size() * static_cast<std::size_t>(size()));
    gather_values(*core_, std::as_bytes(values), std::as_writable_bytes(std::span(gathered)),
                  type + 2 * static_cast<int>(reduction));
    combine_in_rank_order<T>(gathered, reduction, values);
  }

  std::unique_ptr<Core> core_;
};

template <class Core, class DeviceType>
Backend<Core, DeviceType>::Backend(std::unique_ptr<Core> core) : core_(std::move(core)) {}
template <class Core, class DeviceType>
Backend<Core, DeviceType>::Backend(Backend&&) noexcept = default;
template <class Core, class DeviceType>
Backend<Core, DeviceType>& Backend<Core, DeviceType>::operator=(Backend&&) noexcept = default;
template <class Core, class DeviceType>
Backend<Core, DeviceType>::~Backend() = default;

}  // namespace fsdp::comm
